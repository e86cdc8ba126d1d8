//! What is stored, with what real brokers stored.
