//! Addresses in Bitcoin's own notation.

use bitcoin::{Address, Script, address::NetworkUnchecked};

use super::Network;

/// A text is not an address of the network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is no address at all.
    #[error("{text:?} is not a Bitcoin address: {cause}")]
    NotAnAddress {
        /// The text.
        text: String,
        /// What the parser said.
        cause: String,
    },
    /// It is one of another network.
    #[error("{text} is an address of another network than {network}")]
    OtherNetwork {
        /// The text.
        text: String,
        /// The network that was asked for.
        network: Network,
    },
}

/// The locking script an address stands for.
pub fn script_of(text: &str, network: Network) -> Result<Vec<u8>, AddressError> {
    let address: Address<NetworkUnchecked> =
        text.parse().map_err(|cause: bitcoin::address::ParseError| AddressError::NotAnAddress {
            text: text.into(),
            cause: cause.to_string(),
        })?;
    let address = address
        .require_network(network.library())
        .map_err(|_| AddressError::OtherNetwork { text: text.into(), network })?;
    Ok(address.script_pubkey().into_bytes())
}

/// The address a locking script stands for, if there is a notation for it.
pub fn of_script(script: &[u8], network: Network) -> Option<String> {
    let address = Address::from_script(Script::from_bytes(script), network.library()).ok()?;
    Some(address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_scripts_go_both_ways() {
        for (network, text) in [
            (Network::Mainnet, "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"),
            (Network::Mainnet, "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"),
            (Network::Mainnet, "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy"),
            (Network::Regtest, "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"),
        ] {
            let script = script_of(text, network).unwrap();
            assert_eq!(of_script(&script, network).as_deref(), Some(text));
        }
        assert_eq!(of_script(b"\x6a\x01x", Network::Mainnet), None);
    }

    #[test]
    fn what_is_no_address_here_is_refused() {
        let mainnet = "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4";
        assert!(matches!(script_of(mainnet, Network::Regtest), Err(AddressError::OtherNetwork { .. })));
        assert!(matches!(script_of("bc1nonsense", Network::Mainnet), Err(AddressError::NotAnAddress { .. })));
    }
}
