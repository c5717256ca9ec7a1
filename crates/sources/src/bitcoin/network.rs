//! The networks of Bitcoin: names, magics, first blocks, and the two blocks that may write over older coins.

use std::{fmt, str::FromStr};

use bitcoin::{
    hashes::Hash,
    hex::{DisplayHex, FromHex},
    p2p::Magic,
};
use sapwood_types::{BlockHash, BlockRules, Height};

/// A network of Bitcoin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// The main network.
    Mainnet,
    /// The third test network.
    Testnet3,
    /// The fourth test network.
    Testnet4,
    /// The signed test network.
    Signet,
    /// A private signed network with this magic. It shares everything but the magic with [`Network::Signet`].
    CustomSignet([u8; 4]),
    /// A private network for tests.
    Regtest,
}

/// Why a text names no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownNetwork {
    /// There is no such name.
    #[error(
        "there is no Bitcoin network called {name:?}, did you mean {nearest:?}? \
         Known are mainnet, testnet3, testnet4, signet and regtest"
    )]
    Name {
        /// The text.
        name: String,
        /// The known name that is most like it.
        nearest: &'static str,
    },
    /// What follows `signet:` is not the magic of a private signet.
    #[error(
        "{magic:?} is not the magic of a signet: write its four bytes as 8 hexadecimal digits in the order in which its block \
         files begin, for example signet:a553c67e"
    )]
    Magic {
        /// What follows.
        magic: String,
    },
}

/// Every name people use, the one we print first for its network. `main` and `test` are what Bitcoin Core itself says.
const NAMES: [(&str, Network); 9] = [
    ("mainnet", Network::Mainnet),
    ("main", Network::Mainnet),
    ("bitcoin", Network::Mainnet),
    ("testnet3", Network::Testnet3),
    ("testnet", Network::Testnet3),
    ("test", Network::Testnet3),
    ("testnet4", Network::Testnet4),
    ("signet", Network::Signet),
    ("regtest", Network::Regtest),
];

/// The blocks whose coinbases repeat older ones that still had unspent outputs (BIP30 names them). Bitcoin Core lets the
/// new coin write over the old one in these two and in no other block.
const OVERWRITING: [(Height, &str); 2] = [
    (Height(91_842), "00000000000a4d0a398161ffc163c503763b1f4360639393e0e4c8e300e0caec"),
    (Height(91_880), "00000000000743f190a18c5577a3c2d2a1f610ae9601ac046a38084ccb7cd721"),
];

impl Network {
    /// Every network but the private ones.
    pub const ALL: [Network; 5] =
        [Network::Mainnet, Network::Testnet3, Network::Testnet4, Network::Signet, Network::Regtest];

    /// Its name. That of a private signet is `signet`; its magic is added where it is displayed.
    pub fn name(self) -> &'static str {
        match self {
            Network::Mainnet => "mainnet",
            Network::Testnet3 => "testnet3",
            Network::Testnet4 => "testnet4",
            Network::Signet | Network::CustomSignet(_) => "signet",
            Network::Regtest => "regtest",
        }
    }

    /// The four bytes before each block in a block file and each message on the wire.
    pub fn magic(self) -> [u8; 4] {
        match self {
            Network::CustomSignet(magic) => magic,
            known => Magic::from(known.library()).to_bytes(),
        }
    }

    /// The network with this magic, unless it is a private one.
    pub fn of_magic(magic: [u8; 4]) -> Option<Network> {
        Network::ALL.into_iter().find(|network| network.magic() == magic)
    }

    /// The hash of its first block.
    pub fn genesis(self) -> BlockHash {
        from_wire(bitcoin::constants::ChainHash::using_genesis_block_const(self.library()).to_bytes())
    }

    /// Its first block, as it goes over the wire.
    pub fn genesis_block(self) -> Vec<u8> {
        bitcoin::consensus::serialize(&bitcoin::constants::genesis_block(self.library()))
    }

    /// Whether transactions of this block may write over older ones of the same id that have unspent outputs.
    pub fn allows_overwrite(self, height: Height, hash: &BlockHash) -> bool {
        self == Network::Mainnet
            && OVERWRITING.iter().any(|(at, name)| *at == height && name.parse().as_ref() == Ok(hash))
    }

    /// The rules of this block.
    pub fn rules(self, height: Height, hash: &BlockHash) -> BlockRules {
        BlockRules {
            subsidy: Some(self.subsidy(height)),
            allow_overwrite: self.allows_overwrite(height, hash),
            allow_no_outputs: false,
            // The same for all blocks: the policy has it.
            coinbase_maturity: None,
        }
    }

    /// What a block at this height mints.
    pub fn subsidy(self, height: Height) -> u64 {
        const FIRST: u64 = 50 * 100_000_000;
        let halving = match self {
            Network::Regtest => 150,
            _ => 210_000,
        };
        FIRST.checked_shr(height.0 / halving).unwrap_or(0)
    }

    /// Where a node listens for JSON-RPC unless told otherwise.
    pub fn default_rpc_port(self) -> u16 {
        match self {
            Network::Mainnet => 8332,
            Network::Testnet3 => 18332,
            Network::Testnet4 => 48332,
            Network::Signet | Network::CustomSignet(_) => 38332,
            Network::Regtest => 18443,
        }
    }

    /// The directory below a node's data directory where it keeps this network.
    pub fn directory(self) -> Option<&'static str> {
        match self {
            Network::Mainnet => None,
            Network::Testnet3 => Some("testnet3"),
            Network::Testnet4 => Some("testnet4"),
            Network::Signet | Network::CustomSignet(_) => Some("signet"),
            Network::Regtest => Some("regtest"),
        }
    }

    pub(crate) fn library(self) -> bitcoin::Network {
        match self {
            Network::Mainnet => bitcoin::Network::Bitcoin,
            Network::Testnet3 => bitcoin::Network::Testnet,
            Network::Testnet4 => bitcoin::Network::Testnet4,
            Network::Signet | Network::CustomSignet(_) => bitcoin::Network::Signet,
            Network::Regtest => bitcoin::Network::Regtest,
        }
    }
}

impl From<Network> for bitcoin::Network {
    fn from(network: Network) -> Self {
        network.library()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::CustomSignet(magic) => write!(f, "signet:{}", magic.to_lower_hex_string()),
            known => f.write_str(known.name()),
        }
    }
}

impl FromStr for Network {
    type Err = UnknownNetwork;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = text.trim().to_lowercase();
        if let Some((_, network)) = NAMES.iter().find(|(name, _)| *name == wanted) {
            return Ok(*network);
        }
        if let Some(magic) = wanted.strip_prefix("signet:") {
            return signet(magic).ok_or_else(|| UnknownNetwork::Magic { magic: magic.to_owned() });
        }
        let nearest = NAMES.iter().min_by_key(|(name, _)| distance(name, &wanted));
        Err(UnknownNetwork::Name {
            name: text.to_owned(),
            nearest: nearest.map_or("mainnet", |(name, _)| name),
        })
    }
}

/// The signet with this magic, unless that belongs to another network.
fn signet(magic: &str) -> Option<Network> {
    let magic = <[u8; 4]>::from_hex(magic).ok()?;
    match Network::of_magic(magic) {
        None => Some(Network::CustomSignet(magic)),
        Some(Network::Signet) => Some(Network::Signet),
        Some(_) => None,
    }
}

/// What is known of the owner of a magic, for messages.
pub(crate) fn describe_magic(magic: [u8; 4]) -> String {
    match Network::of_magic(magic) {
        Some(network) => format!("the magic of {network}"),
        None => format!("{}, which no known network uses", magic.to_lower_hex_string()),
    }
}

/// Turns a hash around: Bitcoin writes them last byte first.
pub(crate) fn from_wire(mut bytes: [u8; 32]) -> BlockHash {
    bytes.reverse();
    BlockHash(bytes)
}

pub(crate) fn block_hash(hash: bitcoin::BlockHash) -> BlockHash {
    from_wire(hash.to_byte_array())
}

/// How many letters have to change to make one text of the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let changed = diagonal + usize::from(x != y);
            diagonal = *cell;
            left = changed.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subsidy_halves_until_nothing_is_left() {
        let mainnet = |height| Network::Mainnet.subsidy(Height(height));
        assert_eq!(
            [mainnet(0), mainnet(209_999), mainnet(210_000)],
            [50, 50, 25].map(|coins: u64| coins * 100_000_000)
        );
        assert_eq!([mainnet(33 * 210_000 - 1), mainnet(33 * 210_000), mainnet(u32::MAX)], [1, 0, 0]);
        assert_eq!(Network::Regtest.subsidy(Height(150)), 25 * 100_000_000);
    }

    #[test]
    fn every_name_people_use_is_understood() {
        for (name, network) in NAMES {
            assert_eq!(name.parse(), Ok(network));
            assert_eq!(name.to_uppercase().parse(), Ok(network));
        }
        for network in Network::ALL {
            assert_eq!(network.to_string().parse(), Ok(network));
            assert_eq!(Network::of_magic(network.magic()), Some(network));
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest() {
        let nearest = |name: &str| match name.parse::<Network>() {
            Err(UnknownNetwork::Name { nearest, .. }) => nearest,
            other => panic!("{other:?}"),
        };
        assert_eq!(nearest("mianet"), "mainnet");
        assert_eq!(nearest("regtset"), "regtest");
        assert_eq!(nearest("sigent"), "signet");
        assert_eq!(nearest("testnet5"), "testnet3");
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn a_private_signet_is_told_by_its_magic() {
        // That of Mutinynet.
        let private: Network = " Signet:A553C67E ".parse().unwrap();
        assert_eq!(private, Network::CustomSignet([0xa5, 0x53, 0xc6, 0x7e]));
        assert_eq!(private.to_string(), "signet:a553c67e");
        assert_eq!(private.to_string().parse(), Ok(private));
        assert_eq!(private.magic(), [0xa5, 0x53, 0xc6, 0x7e]);
        assert_eq!((private.genesis(), private.name()), (Network::Signet.genesis(), "signet"));
        assert_eq!(Network::of_magic(private.magic()), None);
        assert_eq!("signet:0a03cf40".parse(), Ok(Network::Signet));
        // The last one is the main network's.
        for bad in ["", "a553c6", "a553c67e00", "a553c67g", "f9beb4d9"] {
            let refused = Err(UnknownNetwork::Magic { magic: bad.to_owned() });
            assert_eq!(format!("signet:{bad}").parse::<Network>(), refused);
        }
    }

    #[test]
    fn first_blocks_are_those_bitcoin_core_prints() {
        let expected = [
            (Network::Mainnet, "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f"),
            (Network::Testnet3, "000000000933ea01ad0ee984209779baaec3ced90fa3f408719526f8d77f4943"),
            (Network::Testnet4, "00000000da84f2bafbbc53dee25a72ae507ff4914b867c565be350b0da8bf043"),
            (Network::Signet, "00000008819873e925422c1ff0f99f7cc9bbb232af63a077a480a3633bee1ef6"),
            (Network::Regtest, "0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206"),
        ];
        for (network, hash) in expected {
            assert_eq!(network.genesis().to_string(), hash, "{network}");
            let block = bitcoin::consensus::deserialize::<bitcoin::Block>(&network.genesis_block()).unwrap();
            assert_eq!(block_hash(block.block_hash()), network.genesis(), "{network}");
        }
    }

    #[test]
    fn only_the_two_bip30_blocks_may_write_over_coins() {
        let hash: BlockHash = OVERWRITING[0].1.parse().unwrap();
        assert!(Network::Mainnet.allows_overwrite(Height(91_842), &hash));
        assert!(!Network::Mainnet.allows_overwrite(Height(91_880), &hash));
        assert!(!Network::Mainnet.allows_overwrite(Height(91_842), &BlockHash([0; 32])));
        assert!(!Network::Regtest.allows_overwrite(Height(91_842), &hash));
        assert!(OVERWRITING.iter().all(|(_, hash)| hash.parse::<BlockHash>().is_ok()));
    }
}
