//! Tests of the pools.
