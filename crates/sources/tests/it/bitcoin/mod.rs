//! Bitcoin as a source of blocks, tried on real blocks and on damaged ones, in files and from a node.

mod branches;
mod data;
mod hostile;
mod live;
mod mainnet;
mod node;
mod node_trouble;
mod regtest;
mod shuffled;
mod survey;
mod utxo;
