//! How Bitcoin Core writes a coin before it hashes it.
//!
//! Unlike every other format here this one is not ours: numbers are little-endian and the transaction id is in wire order,
//! because `gettxoutsetinfo muhash` must give the same hash. It is only hashed, never stored.

use crate::{Height, OutPoint, OutputRef};

/// Appends what Bitcoin Core hashes of a coin made at this height: transaction id in wire order, output number, twice the
/// height plus 1 for a coinbase, value, length of the script, script.
pub fn write_coin(outpoint: OutPoint, height: Height, coinbase: bool, output: OutputRef, to: &mut Vec<u8>) {
    to.extend(outpoint.txid.0.iter().rev());
    to.extend_from_slice(&outpoint.vout.to_le_bytes());
    // The shift drops the top bit, as it does there.
    to.extend_from_slice(&(height.0 << 1 | u32::from(coinbase)).to_le_bytes());
    to.extend_from_slice(&output.value.to_le_bytes());
    write_compact_size(output.script.len(), to);
    to.extend_from_slice(output.script);
}

/// Bitcoin's own variable-length number: one byte below 253, else a mark and two, four or eight bytes.
fn write_compact_size(length: usize, to: &mut Vec<u8>) {
    let bytes = (length as u64).to_le_bytes();
    let (mark, size) = match length as u64 {
        0..=252 => (None, 1),
        253..=0xffff => (Some(253), 2),
        0x1_0000..=0xffff_ffff => (Some(254), 4),
        _ => (Some(255), 8),
    };
    to.extend(mark);
    to.extend_from_slice(&bytes[..size]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Output, TxId};

    fn bytes(height: u32, coinbase: bool, script: usize) -> Vec<u8> {
        let mut txid = [0x11; 32];
        (txid[0], txid[31]) = (0xaa, 0xbb);
        let output = Output::new(5_000_000_000, vec![0x51; script]);
        let mut to = vec![0xee];
        write_coin(OutPoint::new(TxId(txid), 258), Height(height), coinbase, (&output).into(), &mut to);
        to
    }

    #[test]
    fn a_coin_is_written_as_bitcoin_core_writes_it() {
        let expected = [
            &[0xee][..],
            &[0xbb],
            &[0x11; 30],
            &[0xaa],
            &[0x02, 0x01, 0, 0],
            &[0x21, 0x03, 0, 0],
            &[0x00, 0xf2, 0x05, 0x2a, 0x01, 0, 0, 0],
            &[2],
            &[0x51; 2],
        ];
        assert_eq!(bytes(400, true, 2), expected.concat());
        assert_eq!(bytes(400, false, 2)[37..41], [0x20, 0x03, 0, 0]);
    }

    #[test]
    fn long_scripts_have_a_marked_length() {
        for (script, length) in [
            (0, &[0][..]),
            (252, &[252]),
            (253, &[253, 253, 0]),
            (0xffff, &[253, 0xff, 0xff]),
            (0x1_0000, &[254, 0, 0, 1, 0]),
        ] {
            let written = bytes(1, false, script);
            assert_eq!(written[49..], [length, &vec![0x51; script]].concat(), "{script}");
        }
    }
}
