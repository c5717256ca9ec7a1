//! Two things at once, where there is enough of both.

/// Does both, side by side if the work is `large`.
pub(crate) fn beside<A: Send, B: Send>(
    large: bool,
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B + Send,
) -> (A, B) {
    if large { rayon::join(one, other) } else { (one(), other()) }
}
