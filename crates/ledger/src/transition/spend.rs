//! Spending and taking a spend back.

use sapwood_rules::{
    SpendRefusal,
    spendability::{SlotSpend, SpendOverrides, check_record, check_slot},
};
use sapwood_types::{Height, OutPoint, Slot, Spender, TxId};

use crate::{
    InputRefusal, SpendError, UnspendError, WorkingSet,
    request::{SpendInput, SpendRequest, Unspend},
    working_set::{Access, Stop},
};

/// Declares what a spend needs.
pub fn want(set: &mut WorkingSet, request: &SpendRequest) {
    set.want([request.child]);
    set.want_outputs(request.inputs.iter().map(|input| input.outpoint));
}

/// Whether `spender` may spend `outpoint`: the checks of the record, then those of the slot.
pub(super) fn check(
    set: &mut WorkingSet,
    input: SpendInput,
    spender: Spender,
    height: Height,
    overrides: SpendOverrides,
) -> Access<Result<SlotSpend, SpendRefusal>> {
    let slot = set.slot(input.outpoint)?;
    let outpoint = input.outpoint;
    let Some(head) = set.head(outpoint.txid)? else { return Ok(Err(SpendRefusal::NotFound)) };
    if let Err(refusal) = check_record(head, height, overrides) {
        return Ok(Err(refusal));
    }
    let verdict = check_slot(head, outpoint.vout, slot.as_ref(), spender, height);
    if let (Some(expected), Some(_)) = (input.expected, slot)
        && let Some(output) = set.output(outpoint)?
    {
        let actual = output.utxo_hash(outpoint);
        if actual != expected {
            return Ok(Err(SpendRefusal::HashMismatch { actual, expected }));
        }
    }
    Ok(verdict)
}

/// Checks every input of one transaction and holds what they spend: all of them, or none.
///
/// `child_stored` tells whether the spender's record exists: a repeat by a spender that was mined and is no longer stored would
/// bring a pruned transaction back.
pub(super) fn hold_all(
    set: &mut WorkingSet,
    inputs: &[SpendInput],
    child: TxId,
    child_stored: bool,
    mined_at: Option<Height>,
    height: Height,
    overrides: SpendOverrides,
) -> Access<Result<(), Vec<InputRefusal>>> {
    set.want_outputs(inputs.iter().map(|input| input.outpoint));
    let mut refused = Vec::new();
    let mut new: Vec<(OutPoint, Spender)> = Vec::with_capacity(inputs.len());
    for input in inputs {
        let outpoint = input.outpoint;
        let spender = Spender::new(child, input.vin);
        let refusal = match check(set, *input, spender, height, overrides)? {
            Ok(SlotSpend::Repeat { mined_at: Some(mined_at) }) if !child_stored => {
                Some(SpendRefusal::SpenderPruned { by: spender, mined_at })
            }
            Ok(SlotSpend::Repeat { .. }) => None,
            // Who spent it is forgotten, but at that height it was this one: a mined transaction holds what it spends.
            Err(SpendRefusal::SpentAndSettled { mined_at: settled })
                if child_stored && mined_at == Some(settled) =>
            {
                None
            }
            Ok(SlotSpend::New) => match new.iter().find(|(taken, _)| *taken == outpoint) {
                // The same input named twice is a repeat.
                Some((_, by)) if *by == spender => None,
                Some((_, by)) => Some(SpendRefusal::Spent { by: *by, mined_at }),
                None => {
                    new.push((outpoint, spender));
                    None
                }
            },
            Err(refusal) => Some(refusal),
        };
        refused.extend(refusal.map(|refusal| InputRefusal { vin: input.vin, outpoint, refusal }));
    }
    if !refused.is_empty() {
        return Ok(Err(refused));
    }
    for (outpoint, spender) in new {
        set.set_slot(outpoint, Slot::spent(spender, mined_at))?;
    }
    Ok(Ok(()))
}

/// Spends inputs of a stored transaction.
pub fn spend(set: &mut WorkingSet, request: &SpendRequest, height: Height) -> Result<(), Stop<SpendError>> {
    let child = request.child;
    let Some(head) = set.head(child)? else { return Err(SpendError::UnknownSpender { child }.into()) };
    if let Some(since) = head.conflicting_since {
        return Err(SpendError::SpenderConflicting { child, since }.into());
    }
    let mined_at = head.mined_at();
    let inputs = set.inputs(child)?;
    for input in &request.inputs {
        let SpendInput { vin, outpoint, .. } = *input;
        if inputs.get(vin as usize) != Some(&outpoint) {
            return Err(SpendError::NotAnInput { child, vin, outpoint }.into());
        }
    }
    hold_all(set, &request.inputs, child, true, mined_at, height, request.overrides)?
        .map_err(|inputs| SpendError::Inputs { child, inputs }.into())
}

/// Takes a spend back.
pub fn unspend(set: &mut WorkingSet, request: &Unspend) -> Result<(), Stop<UnspendError>> {
    let Unspend { outpoint, spender } = *request;
    match set.slot(outpoint)? {
        None | Some(Slot::Unspendable) => Err(UnspendError::NotFound { outpoint }.into()),
        Some(Slot::Unspent) => Ok(()),
        Some(Slot::Frozen) => Err(UnspendError::Frozen { outpoint }.into()),
        Some(Slot::Settled { child_mined_at }) => {
            Err(UnspendError::SpenderMined { outpoint, mined_at: child_mined_at }.into())
        }
        Some(Slot::Spent { spender: by, .. }) if by != spender => {
            Err(UnspendError::OtherSpender { outpoint, by, wanted: spender }.into())
        }
        Some(Slot::Spent { child_mined_at: Some(mined_at), .. }) => {
            Err(UnspendError::SpenderMined { outpoint, mined_at }.into())
        }
        Some(Slot::Spent { child_mined_at: None, .. }) => Ok(set.set_slot(outpoint, Slot::Unspent)?),
    }
}
