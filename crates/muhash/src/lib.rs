//! MuHash3072: one 32-byte hash of a whole set, kept up to date as elements come and go.
//!
//! It is the hash that Bitcoin Core's `gettxoutsetinfo muhash` prints. A node that applies a block inserts the
//! coins it makes and removes the coins it spends; at any height the digest says whether two UTXO sets are the
//! same, without reading either of them.
//!
//! ```
//! use sapwood_muhash::{MuHash, display_hex};
//!
//! let mut set = MuHash::new();
//! set.insert(b"coin a");
//! set.insert(b"coin b");
//! set.remove(b"coin a");
//!
//! let mut only_b = MuHash::new();
//! only_b.insert(b"coin b");
//! assert_eq!(set, only_b);
//! assert_eq!(set.finalize(), only_b.finalize());
//!
//! // Keep it in a database, and print it the way Bitcoin Core does.
//! let stored = set.to_bytes();
//! let restored = MuHash::from_bytes(&stored)?;
//! assert_eq!(display_hex(&restored.finalize()), display_hex(&only_b.finalize()));
//! # Ok::<(), sapwood_muhash::StateError>(())
//! ```
//!
//! # What it computes
//!
//! Each element becomes a number: SHA-256 of its bytes is the key of a ChaCha20 stream (nonce and counter zero), and
//! the first 384 bytes of that stream are a little-endian number modulo the prime `p = 2^3072 - 1103717`. The set is
//! the product of its elements' numbers; removing one divides by it. The digest is the SHA-256 of that quotient
//! written as 384 little-endian bytes.
//!
//! # Why it is correct
//!
//! * Multiplication modulo `p` is commutative and associative, so neither order nor grouping matters: shards hashed on
//!   several threads [`combine`](MuHash::combine) to the same value.
//! * `p` is prime, so every number but zero has an inverse and removing undoes inserting exactly. Inversion is the slow
//!   part, so the removed elements are multiplied into a denominator of their own and only
//!   [`finalize`](MuHash::finalize) divides. An element whose number is zero would take a chance of 2 in 2^3072.
//! * Finding two sets with the same product is as hard as discrete logarithms modulo `p` (Bellare and Micciancio,
//!   "A New Paradigm for Collision-Free Hashing", 1997); 3072 bits put that near 128-bit security.
//!
//! # What it does not do
//!
//! It hashes a multiset and does not know its members: inserting twice counts twice, and removing what was never
//! inserted is not noticed until the insertion comes. How a coin is turned into bytes is the caller's business. Running
//! time depends on the data, which is fine for public chains and wrong for secrets.

mod element;
mod num;
mod state;

use std::fmt::Write;

use num::Num;
use sha2::{Digest, Sha256};
pub use state::{Part, StateError};

/// A running hash of a set; see the [crate documentation](crate).
///
/// Two values are equal when they stand for the same set, however they got there. Comparing takes two multiplications,
/// so it is a thousand times cheaper than comparing two [digests](Self::finalize).
#[derive(Clone, Debug)]
pub struct MuHash {
    numerator: Num,
    denominator: Num,
}

impl MuHash {
    /// The hash of the empty set.
    pub const fn new() -> Self {
        Self { numerator: Num::ONE, denominator: Num::ONE }
    }

    /// Adds an element.
    pub fn insert(&mut self, data: &[u8]) {
        self.numerator = self.numerator.mul(&element::number(data));
    }

    /// Takes an element out. Removing before inserting gives the same result.
    pub fn remove(&mut self, data: &[u8]) {
        self.denominator = self.denominator.mul(&element::number(data));
    }

    /// Applies to this set everything that was inserted into and removed from `other`.
    pub fn combine(&mut self, other: &Self) {
        self.numerator = self.numerator.mul(&other.numerator);
        self.denominator = self.denominator.mul(&other.denominator);
    }

    /// The digest, in the byte order of the hash function; [`display_hex`] prints it as Bitcoin Core does.
    ///
    /// Takes milliseconds once something has been removed (one modular inversion), so call it per block, not per coin.
    pub fn finalize(&self) -> [u8; 32] {
        let quotient = match self.denominator {
            Num::ONE => self.numerator.clone(),
            _ => self.numerator.mul(&self.denominator.inverse()),
        };
        let mut hash = Sha256::new();
        for limb in quotient.limbs() {
            hash.update(limb.to_le_bytes());
        }
        hash.finalize().into()
    }
}

impl Default for MuHash {
    fn default() -> Self {
        Self::new()
    }
}

/// `a / b == c / d` exactly when `a · d == c · b`, which spares the two inversions.
impl PartialEq for MuHash {
    fn eq(&self, other: &Self) -> bool {
        self.numerator.mul(&other.denominator) == other.numerator.mul(&self.denominator)
    }
}

impl Eq for MuHash {}

/// A digest as Bitcoin Core shows it: hex, last byte first.
pub fn display_hex(digest: &[u8; 32]) -> String {
    digest.iter().rev().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
