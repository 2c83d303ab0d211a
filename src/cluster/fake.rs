//! An API server that misbehaves on demand, for tests.
