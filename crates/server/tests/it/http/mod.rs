//! HTTP on a real node.

mod world;

mod access;
mod ages;
mod agree;
mod blocks;
mod control;
mod documents;
mod events;
mod flood;
mod health;
mod hostile;
mod names;
mod outside;
mod reads;
