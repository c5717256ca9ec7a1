//! Reads a `dumptxoutset` file (version 2) and writes each coin the way Bitcoin Core hashes it.

use num_bigint::BigUint;

/// The bytes to hash, for each coin of the file. `None` when the file is not what it should be.
pub(crate) fn coins(file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut file = Reader(file);
    let (magic, version) = (file.array()?, file.array()?);
    if magic != *b"utxo\xff" || u16::from_le_bytes(version) != 2 {
        return None;
    }
    let _network_and_tip: [u8; 4 + 32] = file.array()?;
    let expected = u64::from_le_bytes(file.array()?);

    let mut coins = Vec::new();
    while !file.0.is_empty() {
        let txid: [u8; 32] = file.array()?;
        for _ in 0..file.compact_size()? {
            let vout = u32::try_from(file.compact_size()?).ok()?;
            let height_and_coinbase = u32::try_from(file.varint()?).ok()?;
            let value = decompress_amount(file.varint()?);
            let script = file.script()?;
            let mut coin = txid.to_vec();
            coin.extend(vout.to_le_bytes());
            coin.extend(height_and_coinbase.to_le_bytes());
            coin.extend(value.to_le_bytes());
            write_compact_size(&mut coin, script.len());
            coin.extend(script);
            coins.push(coin);
        }
    }
    (coins.len() as u64 == expected).then_some(coins)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, len: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn compact_size(&mut self) -> Option<u64> {
        Some(match self.array::<1>()? {
            [253] => u16::from_le_bytes(self.array()?).into(),
            [254] => u32::from_le_bytes(self.array()?).into(),
            [255] => u64::from_le_bytes(self.array()?),
            [small] => small.into(),
        })
    }

    /// Bitcoin Core's other variable-length number: base 128, big end first, each continuation adding one.
    fn varint(&mut self) -> Option<u64> {
        let mut n: u64 = 0;
        loop {
            let [byte] = self.array()?;
            n = n.checked_mul(128)?.checked_add(u64::from(byte & 0x7f))?;
            if byte & 0x80 == 0 {
                return Some(n);
            }
            n = n.checked_add(1)?;
        }
    }

    /// A script; the six most usual kinds are stored without their fixed parts.
    fn script(&mut self) -> Option<Vec<u8>> {
        Some(match self.varint()? {
            0 => [&[0x76, 0xa9, 20], self.take(20)?, &[0x88, 0xac]].concat(),
            1 => [&[0xa9, 20], self.take(20)?, &[0x87]].concat(),
            parity @ (2 | 3) => [&[33, parity as u8], self.take(32)?, &[0xac]].concat(),
            parity @ (4 | 5) => {
                let x = self.take(32)?;
                [&[65, 4], x, curve_y(x, parity == 5)?.as_slice(), &[0xac]].concat()
            }
            raw => self.take(usize::try_from(raw - 6).ok()?)?.to_vec(),
        })
    }
}

/// The y of the secp256k1 point with this x, of which the file keeps only the lowest bit.
fn curve_y(x: &[u8], odd: bool) -> Option<[u8; 32]> {
    let p = (BigUint::from(1u8) << 256) - (1u64 << 32) - 977u32;
    let x = BigUint::from_bytes_be(x);
    let square: BigUint = (&x * &x * &x + 7u8) % &p;
    // p is 3 modulo 4, so this power is a square root, if there is one.
    let mut y = square.modpow(&((&p + 1u8) >> 2), &p);
    if &y * &y % &p != square {
        return None;
    }
    if y.bit(0) != odd {
        y = p - y;
    }
    let digits = y.to_bytes_be();
    let mut bytes = [0; 32];
    bytes[32 - digits.len()..].copy_from_slice(&digits);
    Some(bytes)
}

/// Amounts are stored as mantissa and power of ten, packed into one number.
fn decompress_amount(packed: u64) -> u64 {
    let Some(packed) = packed.checked_sub(1) else { return 0 };
    let (exponent, packed) = (packed % 10, packed / 10);
    let mantissa = if exponent < 9 { packed / 9 * 10 + packed % 9 + 1 } else { packed + 1 };
    mantissa * 10u64.pow(exponent as u32)
}

fn write_compact_size(out: &mut Vec<u8>, n: usize) {
    match n {
        0..253 => out.push(n as u8),
        253..0x1_0000 => {
            out.push(253);
            out.extend((n as u16).to_le_bytes());
        }
        _ => {
            out.push(254);
            out.extend((n as u32).to_le_bytes());
        }
    }
}
