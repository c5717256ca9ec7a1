//! Following real chains and made-up ones.

mod asynchronous;
mod bad_branches;
mod big_block;
mod coins;
mod core_chains;
mod data;
mod events;
mod growing_files;
mod health;
mod no_room;
mod real_blocks;
mod refused_blocks;
mod rivals;
mod rows;
mod scripted;
mod trouble;
mod wedges;
