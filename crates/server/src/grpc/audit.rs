//! The arguments of a call in words, for the log. They are read by their descriptors, so no method can be forgotten.

use std::{fmt::Write as _, sync::LazyLock};

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value};

use super::proto;

/// Items of a list that are shown.
const ITEMS: usize = 3;

static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| match DescriptorPool::decode(proto::DESCRIPTORS) {
        Ok(pool) => Some(pool),
        Err(error) => {
            tracing::error!(%error, "the descriptors of the services are broken: arguments are not logged");
            None
        }
    });

/// What a method takes. `None` if there is no such method.
fn input(path: &str) -> Option<MessageDescriptor> {
    let (service, method) = path.trim_start_matches('/').split_once('/')?;
    let service = POOL.as_ref()?.get_service_by_name(service)?;
    service.methods().find(|known| known.name() == method).map(|method| method.input())
}

/// The arguments of a call, from the bytes of its body. `None` if they are no whole message of this method.
pub(super) fn arguments(path: &str, body: &[u8]) -> Option<String> {
    // Whether it is compressed, its length, and the message.
    let (head, message) = body.split_first_chunk::<5>()?;
    if head[0] != 0 {
        return None;
    }
    let message = DynamicMessage::decode(input(path)?, message).ok()?;
    let mut words = String::new();
    show_message(&message, &mut words);
    Some(words)
}

fn show_message(message: &DynamicMessage, words: &mut String) {
    for (number, (field, value)) in message.fields().enumerate() {
        let space = if number == 0 { "" } else { " " };
        let _ = write!(words, "{space}{}=", field.name());
        show(value, words);
    }
}

fn show(value: &Value, words: &mut String) {
    match value {
        Value::Bytes(bytes) => {
            for byte in bytes.iter().take(64) {
                let _ = write!(words, "{byte:02x}");
            }
            if bytes.len() > 64 {
                let _ = write!(words, "…({} bytes)", bytes.len());
            }
        }
        Value::String(text) => {
            let _ = write!(words, "{text:?}");
        }
        Value::Message(message) => {
            words.push('{');
            show_message(message, words);
            words.push('}');
        }
        Value::List(items) => {
            words.push('[');
            for (number, item) in items.iter().take(ITEMS).enumerate() {
                if number > 0 {
                    words.push_str(", ");
                }
                show(item, words);
            }
            if items.len() > ITEMS {
                let _ = write!(words, ", … {} in all", items.len());
            }
            words.push(']');
        }
        Value::Bool(value) => drop(write!(words, "{value}")),
        Value::I32(value) | Value::EnumNumber(value) => drop(write!(words, "{value}")),
        Value::I64(value) => drop(write!(words, "{value}")),
        Value::U32(value) => drop(write!(words, "{value}")),
        Value::U64(value) => drop(write!(words, "{value}")),
        Value::F32(value) => drop(write!(words, "{value}")),
        Value::F64(value) => drop(write!(words, "{value}")),
        Value::Map(map) => drop(write!(words, "{} entries", map.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &impl prost::Message) -> Vec<u8> {
        let bytes = message.encode_to_vec();
        [&[0][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat()
    }

    #[test]
    fn c3_arguments_are_readable_and_bounded() {
        let outpoint = |number: u8| proto::OutPoint { txid: vec![number; 32].into(), vout: number.into() };
        let request = proto::FreezeRequest { outpoints: vec![outpoint(1)] };
        let words = arguments("/sapwood.v1.Utxo/Freeze", &framed(&request)).unwrap();
        assert_eq!(words, format!("outpoints=[{{txid={} vout=1}}]", "01".repeat(32)));
        let many = proto::FreezeRequest { outpoints: (0..200).map(outpoint).collect() };
        let words = arguments("/sapwood.v1.Utxo/Freeze", &framed(&many)).unwrap();
        assert!(words.ends_with("… 200 in all]") && words.len() < 400, "{words}");
        assert_eq!(arguments("/sapwood.v1.Utxo/Freeze", &framed(&request)[..20]), None);
        assert_eq!(arguments("/sapwood.v1.Utxo/New", &framed(&request)), None);
        assert_eq!(arguments("/sapwood.v1.Utxo/Freeze", b"\xff\xff\xff\xff\xff\xff"), None);
    }
}
