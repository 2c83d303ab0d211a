//! Tables of the small parts; the whole is told in `tests/stories` and searched in `tests/search`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod record;
mod verdict;
