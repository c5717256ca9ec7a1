//! Stored things as JSON. Bytes are hexadecimal digits; amounts are texts, because not every reader of JSON keeps 64 bits.

use sapwood_ledger::Utxo;
use sapwood_types::{AddressHash, Height, Input, MinedIn, OutPoint, Output, Slot, TxId, TxRecord};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::address::{ChainKind, hex};

/// The state of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputState {
    /// Nothing spends it.
    Unspent,
    /// It may not be spent until it is unfrozen or reassigned.
    Frozen,
    /// It can never be spent, and only its place is kept.
    Unspendable,
    /// It is spent.
    Spent,
}

/// Who spends an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SpentBy {
    /// The id of the spending transaction. `None` once it lies so deep that its id is not kept.
    pub txid: Option<TxId>,
    /// The number of its input. `None` like `txid`.
    pub vin: Option<u32>,
    /// The height at which it was mined. `None` if it is not.
    pub mined_at: Option<Height>,
}

/// The state of an output and who spends it.
fn state_of(slot: &Slot) -> (OutputState, Option<SpentBy>) {
    match slot {
        Slot::Unspent => (OutputState::Unspent, None),
        Slot::Frozen => (OutputState::Frozen, None),
        Slot::Unspendable => (OutputState::Unspendable, None),
        Slot::Spent { .. } | Slot::Settled { .. } => {
            let spender = slot.spender();
            let spent_by = SpentBy {
                txid: spender.map(|spender| spender.child),
                vin: spender.map(|spender| spender.vin),
                mined_at: slot.child_mined_at(),
            };
            (OutputState::Spent, Some(spent_by))
        }
    }
}

/// An output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputView {
    /// The id of its transaction.
    pub txid: TxId,
    /// Its number.
    pub vout: u32,
    /// Its state.
    pub state: OutputState,
    /// Who spends it, if it is spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_by: Option<SpentBy>,
    /// Its amount in the chain's smallest unit, as a decimal text.
    pub value: Option<String>,
    /// Its address in the chain's own notation. `None` if there is none for its script.
    pub address: Option<String>,
    /// Its locking script or address bytes.
    pub script: Option<String>,
    /// Its payment credential, for chains that have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<AddressHash>,
    /// Whatever else the chain attaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
}

impl OutputView {
    fn new(outpoint: OutPoint, slot: &Slot, output: Option<&Output>, kind: &ChainKind) -> Self {
        let (state, spent_by) = state_of(slot);
        Self {
            txid: outpoint.txid,
            vout: outpoint.vout,
            state,
            spent_by,
            value: output.map(|output| output.value.to_string()),
            address: output.and_then(|output| kind.address_of(&output.script)),
            script: output.map(|output| hex(&output.script)),
            credential: output.and_then(|output| output.credential),
            extra: output
                .map(|output| &output.extra)
                .filter(|extra| !extra.is_empty())
                .map(|extra| hex(extra)),
        }
    }
}

/// An output with what its transaction says about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UtxoView {
    /// The output.
    #[serde(flatten)]
    pub output: OutputView,
    /// The height at which its record was made.
    pub created_height: Height,
    /// The height at which its transaction was mined. `None` if it is not.
    pub mined_at: Option<Height>,
    /// Whether it comes from a coinbase.
    pub coinbase: bool,
}

impl UtxoView {
    /// An output of the store, with its address in the notation of `kind`.
    pub fn new(utxo: &Utxo, kind: &ChainKind) -> Self {
        Self {
            output: OutputView::new(utxo.outpoint, &utxo.slot, Some(&utxo.output), kind),
            created_height: utxo.created_height,
            mined_at: utxo.mined_at,
            coinbase: utxo.coinbase,
        }
    }
}

/// A page of outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UtxoPage {
    /// The outputs.
    pub items: Vec<UtxoView>,
    /// What the outputs of this page are worth together, as a decimal text.
    pub value: String,
    /// What all outputs of the list are worth together, as a decimal text. `None` if the list has more than this page.
    pub total_value: Option<String>,
    /// What this list does not show although one might expect it. `None` if there is no such thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Give it as `cursor` to get the next page. `None` at the end. It stays good while the store changes.
    pub cursor: Option<String>,
}

/// An input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InputView {
    /// The id of the transaction whose output it spends.
    pub txid: TxId,
    /// The number of that output.
    pub vout: u32,
    /// The amount of that output, as a decimal text. `None` if it is not known here.
    pub value: Option<String>,
    /// The address of that output. `None` if it is not known here, or its script has none.
    pub address: Option<String>,
}

impl InputView {
    fn new(input: &Input, kind: &ChainKind) -> Self {
        let previous = input.previous.as_ref();
        Self {
            txid: input.outpoint.txid,
            vout: input.outpoint.vout,
            value: previous.map(|previous| previous.value.to_string()),
            address: previous
                .and_then(|previous| previous.script.as_ref())
                .and_then(|script| kind.address_of(script)),
        }
    }
}

/// A stored transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TxView {
    /// Its id.
    pub txid: TxId,
    /// Its version.
    pub version: u32,
    /// Its lock time.
    pub locktime: u32,
    /// What it pays for being mined, if that is known.
    pub fee: Option<String>,
    /// Its size on the wire.
    pub size: u32,
    /// Whether it mints coins.
    pub coinbase: bool,
    /// The height at which it is mined on the longest chain. `None` if it is not.
    pub mined_at: Option<Height>,
    /// The blocks it is mined in.
    pub blocks: Vec<MinedIn>,
    /// Since when it is unmined, if it is.
    pub unmined_since: Option<Height>,
    /// Since when it is known to lose against another transaction, if it does.
    pub conflicting_since: Option<Height>,
    /// Up to which height it must not be deleted.
    pub preserve_until: Option<Height>,
    /// The first height at which a coinbase's outputs may be spent.
    pub spendable_from: Option<Height>,
    /// Whether its outputs are locked.
    pub locked: bool,
    /// Whether its body lives in an object store.
    pub external: bool,
    /// The name of the object with its body, if it lives there.
    pub body: Option<String>,
    /// The height at which its record was made.
    pub created_height: Height,
    /// What it spends.
    pub inputs: Vec<InputView>,
    /// How many outputs it has.
    pub output_count: u32,
    /// Its outputs, those asked for.
    pub outputs: Vec<OutputView>,
}

impl TxView {
    /// A record with at most `limit` of its outputs, from the one with number `from` on, with addresses in the notation of `kind`.
    pub fn new(record: &TxRecord, from: u32, limit: usize, kind: &ChainKind) -> Self {
        let head = &record.head;
        let outputs = record.slots.iter().zip(&record.outputs).zip(0..).skip(from as usize).take(limit);
        Self {
            txid: record.txid,
            version: record.body.version,
            locktime: record.body.locktime,
            fee: record.body.fee.map(|fee| fee.to_string()),
            size: record.body.size,
            coinbase: head.coinbase,
            mined_at: head.mined_at(),
            blocks: head.blocks.to_vec(),
            unmined_since: head.unmined_since(),
            conflicting_since: head.conflicting_since,
            preserve_until: head.preserve_until,
            spendable_from: head.spending_height,
            locked: head.locked,
            external: head.external.is_some(),
            body: head
                .external
                .map(|external| sapwood_pruner::bodies::key(&record.txid, external).to_string()),
            created_height: head.created_height,
            inputs: record.body.inputs.iter().map(|input| InputView::new(input, kind)).collect(),
            output_count: head.output_count,
            outputs: outputs
                .map(|((slot, output), vout)| {
                    OutputView::new(record.outpoint(vout), slot, output.as_ref(), kind)
                })
                .collect(),
        }
    }
}
