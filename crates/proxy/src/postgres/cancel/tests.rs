//! Tests of cancel requests.
