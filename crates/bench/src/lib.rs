//! The witness: private servers, open-loop load, alternated experiments, tables and plots.
