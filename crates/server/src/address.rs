//! Addresses in the notation of their chain.

use std::{fmt, str::FromStr};

use bitcoin::{Address, Network, Script, address::NetworkUnchecked};
use bytes::Bytes;
use sapwood_types::{TxId, tx_file};

/// What stands before a locking script in hexadecimal digits, for outputs that no address describes.
pub const SCRIPT_PREFIX: &str = "script:";

/// Which chain it is, as far as notation goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainKind {
    /// A network of Bitcoin: base58 and bech32 addresses.
    Bitcoin(Network),
    /// A chain whose addresses are written as hexadecimal digits.
    Other(String),
}

impl fmt::Display for ChainKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChainKind::Bitcoin(network) => write!(f, "bitcoin {}", network.to_core_arg()),
            ChainKind::Other(name) => f.write_str(name),
        }
    }
}

/// Why a text is not an address of this chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It cannot be read.
    #[error(
        "{text:?} is not an address of {chain}: {cause}. A locking script is given in hexadecimal digits, with or without \
         {SCRIPT_PREFIX} before it"
    )]
    Unreadable {
        /// The text.
        text: String,
        /// The chain.
        chain: String,
        /// What is wrong.
        cause: String,
    },
    /// It belongs to another network.
    #[error("{text:?} is an address of another network: this is {chain}")]
    OtherNetwork {
        /// The text.
        text: String,
        /// The chain.
        chain: String,
    },
}

impl ChainKind {
    /// The locking script or address bytes that a text stands for: an address in the chain's own notation, or a locking script in
    /// hexadecimal digits, with [`SCRIPT_PREFIX`] before it or without.
    ///
    /// # Errors
    /// [`AddressError`] if it is none of these, or an address of another network.
    pub fn parse(&self, text: &str) -> Result<Bytes, AddressError> {
        let unreadable =
            |cause: String| AddressError::Unreadable { text: shorten(text), chain: self.to_string(), cause };
        if let Some(digits) = text.strip_prefix(SCRIPT_PREFIX) {
            return bytes_of_hex(digits).map_err(unreadable);
        }
        if text.is_empty() {
            return Err(unreadable("it is empty".into()));
        }
        match self {
            ChainKind::Other(_) => bytes_of_hex(text).map_err(unreadable),
            ChainKind::Bitcoin(network) => {
                let address = match Address::<NetworkUnchecked>::from_str(text) {
                    Ok(address) => address,
                    Err(error) => return bytes_of_hex(text).map_err(|_| unreadable(error.to_string())),
                };
                let address = address.require_network(*network).map_err(|_| AddressError::OtherNetwork {
                    text: shorten(text),
                    chain: self.to_string(),
                })?;
                Ok(Bytes::from(address.script_pubkey().into_bytes()))
            }
        }
    }

    /// Checks that a body is that of a transaction: either as its chain writes it, or a [`tx_file`], which names its transaction. On a
    /// chain whose ids are not known to be hashes, every body that is no such file passes.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check_body(&self, txid: TxId, body: &Bytes) -> Result<(), String> {
        let on_chain = match self {
            ChainKind::Other(_) => None,
            ChainKind::Bitcoin(_) => Some(bitcoin::consensus::deserialize::<bitcoin::Transaction>(body)),
        };
        let found = match on_chain {
            // It goes first: a transaction of a strange version can begin like a file.
            Some(Ok(tx)) => tx.compute_txid().to_string(),
            _ if body.starts_with(&tx_file::MAGIC) => {
                let tx = tx_file::decode(body.clone());
                tx.map_err(|error| format!("it is no transaction file: {error}"))?.txid.to_string()
            }
            Some(Err(error)) => return Err(format!("it is no transaction: {error}")),
            None => return Ok(()),
        };
        if found == txid.to_string() { Ok(()) } else { Err(format!("it is that of transaction {found}")) }
    }

    /// What is not listed under a locking script although one might expect it. `None` if there is no such thing.
    pub fn not_listed(&self, script: &[u8]) -> Option<&'static str> {
        match self {
            ChainKind::Bitcoin(_) if Script::from_bytes(script).is_p2pkh() => Some(
                "outputs that pay to the public key itself (P2PK) are not listed under the address of that key: ask by \
                 their locking script",
            ),
            _ => None,
        }
    }

    /// The address that a locking script or address bytes stand for. `None` if the chain has no address for it.
    pub fn address_of(&self, script: &[u8]) -> Option<String> {
        match self {
            ChainKind::Other(_) => Some(hex(script)),
            ChainKind::Bitcoin(network) => Address::from_script(Script::from_bytes(script), network)
                .ok()
                .map(|address| address.to_string()),
        }
    }
}

/// Enough of a text to recognise it in a message.
fn shorten(text: &str) -> String {
    const LONGEST: usize = 100;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use bitcoin::hex::DisplayHex;
    bytes.to_lower_hex_string()
}

/// Hexadecimal digits as bytes, or what is wrong with them.
pub fn bytes_of_hex(text: &str) -> Result<Bytes, String> {
    use bitcoin::hex::FromHex;
    Vec::<u8>::from_hex(text).map(Bytes::from).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitcoin_addresses_are_read_and_written_in_their_own_notation() {
        let main = ChainKind::Bitcoin(Network::Bitcoin);
        for address in [
            "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
            "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy",
            "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq",
        ] {
            let script = main.parse(address).unwrap();
            assert_eq!(main.address_of(&script).as_deref(), Some(address));
            let by_script = format!("{SCRIPT_PREFIX}{}", hex(&script));
            assert_eq!(main.parse(&by_script), Ok(script.clone()));
            assert_eq!(main.parse(&hex(&script)), Ok(script), "with the prefix and without");
        }
        assert_eq!(main.address_of(b"no address for this"), None);
        assert!(main.parse("").is_err() && main.parse("zz").is_err() && main.parse("abc").is_err());
        assert_eq!(main.parse(SCRIPT_PREFIX), Ok(Bytes::new()), "a script may be empty");
    }

    #[test]
    fn an_address_of_another_network_is_told_apart_from_nonsense() {
        let regtest = ChainKind::Bitcoin(Network::Regtest);
        let other = regtest.parse("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa");
        assert!(matches!(other, Err(AddressError::OtherNetwork { .. })), "{other:?}");
        let nonsense = regtest.parse(&"ä".repeat(500));
        assert!(
            matches!(&nonsense, Err(AddressError::Unreadable { text, .. }) if text.chars().count() == 101)
        );
    }

    #[test]
    fn h4_a_body_is_checked_in_either_form() {
        let genesis = bitcoin::constants::genesis_block(Network::Regtest).txdata.remove(0);
        let txid: TxId = genesis.compute_txid().to_string().parse().unwrap();
        let on_chain = Bytes::from(bitcoin::consensus::serialize(&genesis));
        let tx = |txid| sapwood_types::Tx {
            txid,
            version: 1,
            locktime: 0,
            fee: None,
            size: 9,
            coinbase: false,
            inputs: Vec::new(),
            outputs: vec![sapwood_types::Output::new(7, &b"to"[..])],
            raw: Bytes::new(),
        };
        let (file, other) = (tx(txid).body_bytes(), TxId([9; 32]));
        let bitcoin = ChainKind::Bitcoin(Network::Regtest);
        for kind in [bitcoin.clone(), ChainKind::Other("synthetic".into())] {
            assert_eq!(kind.check_body(txid, &on_chain), Ok(()), "{kind}");
            assert_eq!(kind.check_body(txid, &file), Ok(()), "{kind}");
            let wrong = kind.check_body(other, &file).unwrap_err();
            assert!(wrong.contains(&txid.to_string()), "{kind}: {wrong}");
            let cut = kind.check_body(txid, &file.slice(..file.len() - 1)).unwrap_err();
            assert!(cut.contains("no transaction file"), "{kind}: {cut}");
        }
        assert!(bitcoin.check_body(other, &on_chain).unwrap_err().contains(&txid.to_string()));
        assert!(
            bitcoin
                .check_body(txid, &Bytes::from_static(b"tampered"))
                .unwrap_err()
                .contains("no transaction")
        );
    }

    #[test]
    fn other_chains_use_hexadecimal_digits() {
        let chain = ChainKind::Other("synthetic".into());
        assert_eq!(chain.parse("00ff"), Ok(Bytes::from_static(&[0, 255])));
        assert_eq!(chain.address_of(&[0, 255]).as_deref(), Some("00ff"));
        assert!(chain.parse("0").is_err() && chain.parse("zz").is_err());
    }
}
