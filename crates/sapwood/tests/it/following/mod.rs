//! `sapwood run` and `sapwood import` and their sources: nodes that stop and change, directories that go away, bad blocks.

mod acting;
mod imports;
mod nodes;
mod process;
mod stopping;
mod truth;
