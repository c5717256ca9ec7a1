//! What went wrong, as it goes out.

use prost::Message;
use prost_types::Any;
use sapwood_chain::ChainError;
use sapwood_ledger::{
    ApplyError, ConflictError, CreateError, DeleteError, EngineError, FreezeError, InputRefusal, MineError,
    PreserveError, ReassignError, RollbackError, SpendError, StoreError, Unreadable, UnspendError,
    error::TxProblem,
};
use sapwood_rules::{PolicyField, SpendRefusal};
use sapwood_types::{Height, OutPoint, Spender, TxId};
use tonic::{Code, Status};

use super::bytes;
use crate::grpc::proto::{InputProblem, Problem, ProblemCode, ShortenedNumber, Shortening};

/// An error that can go out as a problem.
pub(crate) trait AsProblem: std::fmt::Display {
    /// Code and figures.
    fn fill(&self, problem: Problem) -> Problem;

    /// The problem, words included.
    fn as_problem(&self) -> Problem {
        self.fill(Problem { message: self.to_string(), ..Problem::default() })
    }
}

impl Problem {
    fn code_is(self, code: ProblemCode) -> Self {
        Self { code: code.into(), ..self }
    }

    fn tx(self, txid: &TxId) -> Self {
        Self { txid: Some(bytes(txid.0)), ..self }
    }

    fn out(self, outpoint: &OutPoint) -> Self {
        Self { outpoint: Some((*outpoint).into()), ..self }
    }

    fn by(self, spender: &Spender) -> Self {
        Self { spender: Some((*spender).into()), ..self }
    }

    fn at(self, height: &Height) -> Self {
        Self { height: Some(height.0), ..self }
    }

    fn hash_is(self, hash: &[u8]) -> Self {
        Self { hash: Some(bytes(hash)), ..self }
    }

    fn refused(self, inputs: &[InputRefusal]) -> Self {
        let inputs = inputs.iter().map(Into::into).collect();
        Self { inputs, ..self.code_is(ProblemCode::InputsRefused) }
    }
}

/// The engine failed, which ends a batch, or a record that the item needs cannot be read.
fn store(problem: Problem) -> Problem {
    problem.code_is(ProblemCode::StoreFailed)
}

impl From<&InputRefusal> for InputProblem {
    fn from(input: &InputRefusal) -> Self {
        use ProblemCode as Is;
        let (code, spender, height) = match &input.refusal {
            SpendRefusal::NotFound => (Is::NotFound, None, None),
            SpendRefusal::Creating => (Is::Creating, None, None),
            SpendRefusal::Conflicting { since } => (Is::Conflicting, None, Some(*since)),
            SpendRefusal::Locked => (Is::Locked, None, None),
            SpendRefusal::Immature { spendable_from, .. } => (Is::Immature, None, Some(*spendable_from)),
            SpendRefusal::NoSuchOutput { .. } => (Is::NoSuchOutput, None, None),
            SpendRefusal::Unspendable => (Is::Unspendable, None, None),
            SpendRefusal::HashMismatch { .. } => (Is::HashMismatch, None, None),
            SpendRefusal::Reassigned { spendable_from, .. } => (Is::Reassigned, None, Some(*spendable_from)),
            SpendRefusal::Frozen => (Is::Frozen, None, None),
            SpendRefusal::Spent { by, mined_at } => (Is::Spent, Some(*by), *mined_at),
            SpendRefusal::SpentAndSettled { mined_at } => (Is::SpentAndSettled, None, Some(*mined_at)),
            SpendRefusal::SpenderPruned { by, mined_at } => (Is::SpenderPruned, Some(*by), Some(*mined_at)),
        };
        Self {
            vin: input.vin,
            outpoint: Some(input.outpoint.into()),
            code: code.into(),
            message: input.refusal.to_string(),
            spender: spender.map(Into::into),
            height: height.map(|height| height.0),
        }
    }
}

/// A record that cannot be read.
impl AsProblem for StoreError {
    fn fill(&self, problem: Problem) -> Problem {
        store(problem)
    }
}

/// A record that is missing from a list.
impl From<Unreadable> for Problem {
    fn from(record: Unreadable) -> Self {
        store(Problem { message: record.error, ..Problem::default() }).tx(&record.txid)
    }
}

impl AsProblem for CreateError {
    fn fill(&self, problem: Problem) -> Problem {
        match self {
            CreateError::Exists { txid } => problem.code_is(ProblemCode::AlreadyExists).tx(txid),
            CreateError::NoOutputs { txid } => problem.code_is(ProblemCode::NoOutputs).tx(txid),
            CreateError::Inputs { txid, inputs } => problem.refused(inputs).tx(txid),
            CreateError::Store(_) => store(problem),
        }
    }
}

impl AsProblem for SpendError {
    fn fill(&self, problem: Problem) -> Problem {
        match self {
            SpendError::UnknownSpender { child } => problem.code_is(ProblemCode::UnknownSpender).tx(child),
            SpendError::SpenderConflicting { child, since } => {
                problem.code_is(ProblemCode::Conflicting).tx(child).at(since)
            }
            SpendError::NotAnInput { child, outpoint, .. } => {
                problem.code_is(ProblemCode::NotAnInput).tx(child).out(outpoint)
            }
            SpendError::Inputs { child, inputs } => problem.refused(inputs).tx(child),
            SpendError::Store(_) => store(problem),
        }
    }
}

impl AsProblem for UnspendError {
    fn fill(&self, problem: Problem) -> Problem {
        match self {
            UnspendError::NotFound { outpoint } => problem.code_is(ProblemCode::NotFound).out(outpoint),
            UnspendError::Frozen { outpoint } => problem.code_is(ProblemCode::Frozen).out(outpoint),
            UnspendError::OtherSpender { outpoint, by, .. } => {
                problem.code_is(ProblemCode::OtherSpender).out(outpoint).by(by)
            }
            UnspendError::SpenderMined { outpoint, mined_at } => {
                problem.code_is(ProblemCode::SpenderMined).out(outpoint).at(mined_at)
            }
            UnspendError::Store(_) => store(problem),
        }
    }
}

impl AsProblem for MineError {
    fn fill(&self, problem: Problem) -> Problem {
        match self {
            MineError::NotFound { txid } => problem.code_is(ProblemCode::NotFound).tx(txid),
            MineError::Conflicting { txid, since } => {
                problem.code_is(ProblemCode::Conflicting).tx(txid).at(since)
            }
            MineError::NoBlock { txid } => problem.code_is(ProblemCode::NoBlock).tx(txid),
            MineError::InputNotHeld { txid, outpoint } => {
                problem.code_is(ProblemCode::InputNotHeld).tx(txid).out(outpoint)
            }
            MineError::Store(_) => store(problem),
        }
    }
}

impl AsProblem for ConflictError {
    fn fill(&self, problem: Problem) -> Problem {
        match self {
            ConflictError::NotFound { txid } => problem.code_is(ProblemCode::NotFound).tx(txid),
            ConflictError::Mined { txid, mined_at } => {
                problem.code_is(ProblemCode::Mined).tx(txid).at(mined_at)
            }
            ConflictError::Frozen { outpoint } => problem.code_is(ProblemCode::Frozen).out(outpoint),
            ConflictError::Inputs { txid, inputs } => problem.refused(inputs).tx(txid),
            ConflictError::Store(_) => store(problem),
        }
    }
}

impl AsProblem for FreezeError {
    fn fill(&self, problem: Problem) -> Problem {
        match self {
            FreezeError::NotFound { txid } => problem.code_is(ProblemCode::NotFound).tx(txid),
            FreezeError::NoSuchOutput { outpoint } => {
                problem.code_is(ProblemCode::NoSuchOutput).out(outpoint)
            }
            FreezeError::NotUnspent { outpoint } => problem.code_is(ProblemCode::NotUnspent).out(outpoint),
            FreezeError::NotFrozen { outpoint } => problem.code_is(ProblemCode::NotFrozen).out(outpoint),
            FreezeError::Store(_) => store(problem),
        }
    }
}

impl AsProblem for ReassignError {
    fn fill(&self, problem: Problem) -> Problem {
        match self {
            ReassignError::NotFound { outpoint } => problem.code_is(ProblemCode::NotFound).out(outpoint),
            ReassignError::NotFrozen { outpoint } => problem.code_is(ProblemCode::NotFrozen).out(outpoint),
            ReassignError::HashMismatch { outpoint, actual, .. } => {
                problem.code_is(ProblemCode::HashMismatch).out(outpoint).hash_is(&actual.0)
            }
            ReassignError::Store(_) => store(problem),
        }
    }
}

impl AsProblem for PreserveError {
    fn fill(&self, problem: Problem) -> Problem {
        match self {
            PreserveError::Store(_) => store(problem),
        }
    }
}

impl AsProblem for DeleteError {
    fn fill(&self, problem: Problem) -> Problem {
        match self {
            DeleteError::Mined { txid, mined_at } => {
                problem.code_is(ProblemCode::Mined).tx(txid).at(mined_at)
            }
            DeleteError::HasChild { child, .. } => {
                let problem = problem.code_is(ProblemCode::HasChild);
                match child {
                    Some(child) => problem.tx(child),
                    None => problem,
                }
            }
            DeleteError::Frozen { outpoint } => problem.code_is(ProblemCode::Frozen).out(outpoint),
            DeleteError::Store(_) => store(problem),
        }
    }
}

impl AsProblem for ApplyError {
    fn fill(&self, problem: Problem) -> Problem {
        match self {
            ApplyError::NotNext { expected, .. } => problem.code_is(ProblemCode::NotNext).at(expected),
            ApplyError::WrongParent { last, .. } => {
                problem.code_is(ProblemCode::WrongParent).hash_is(&last.0)
            }
            ApplyError::NoHeightLeft { last, .. } => {
                problem.code_is(ProblemCode::NoHeightLeft).at(&last.height)
            }
            ApplyError::NoBlockIdLeft { .. } => problem.code_is(ProblemCode::NoBlockIdLeft),
            ApplyError::Tx { txid, problem: cause, .. } => {
                let problem = problem.code_is(ProblemCode::BadBlock).tx(txid);
                match &**cause {
                    TxProblem::Input(input) => Problem { inputs: vec![input.into()], ..problem },
                    TxProblem::ParentUnmined { outpoint, .. } | TxProblem::OutOfOrder { outpoint, .. } => {
                        problem.out(outpoint)
                    }
                    _ => problem,
                }
            }
            ApplyError::Store(_) => store(problem),
        }
    }
}

impl AsProblem for RollbackError {
    fn fill(&self, problem: Problem) -> Problem {
        match self {
            RollbackError::Empty => problem.code_is(ProblemCode::NoBlocks),
            RollbackError::NotBelow { last, .. } => problem.code_is(ProblemCode::NotBelow).at(&last.height),
            RollbackError::BelowFloor { floor, .. } => problem.code_is(ProblemCode::BelowFloor).at(floor),
            RollbackError::OtherBlock { found, .. } => {
                problem.code_is(ProblemCode::OtherBlock).hash_is(&found.0)
            }
            RollbackError::UndoMissing { height } => store(problem).at(height),
            RollbackError::Tx { txid, .. } => problem.code_is(ProblemCode::CannotTakeBack).tx(txid),
            RollbackError::Store(_) => store(problem),
        }
    }
}

/// What is wrong with a block or a rollback, or the status that ends the call because it is not about that at all.
pub(crate) fn chain_problem(error: &ChainError) -> Result<Problem, Box<Status>> {
    let problem = match error {
        ChainError::Apply(ApplyError::Store(error))
        | ChainError::Rollback(RollbackError::Store(error))
        | ChainError::Store(error) => return Err(Box::new(store_status(error))),
        ChainError::Closed | ChainError::Body { .. } => {
            return Err(Box::new(Status::unavailable(error.to_string())));
        }
        ChainError::Apply(error) => error.as_problem(),
        ChainError::Rollback(error) => error.as_problem(),
        ChainError::Earlier { .. } => Problem::default().code_is(ProblemCode::EarlierBlock),
        // Only a follower of a source can fail like this, and it does not work for a client.
        ChainError::Source(_)
        | ChainError::ForkBelowFloor { .. }
        | ChainError::BlockMissing { .. }
        | ChainError::NoUtxos { .. }
        | ChainError::BadBlock { .. } => return Err(Box::new(Status::internal(error.to_string()))),
    };
    Ok(Problem { message: error.to_string(), ..problem })
}

/// The code of a failed engine.
fn engine_code(error: &EngineError) -> Code {
    match error {
        EngineError::Failed { .. } | EngineError::WrongNumber { .. } => Code::Internal,
        EngineError::Unavailable { .. }
        | EngineError::OutcomeUnknown { .. }
        | EngineError::Stalled { .. } => Code::Unavailable,
        EngineError::Full { .. } => Code::ResourceExhausted,
        EngineError::Damaged { .. } | EngineError::WritesLost { .. } | EngineError::Displaced { .. } => {
            Code::DataLoss
        }
        EngineError::Fenced { .. } => Code::Aborted,
        EngineError::Unsupported { .. } => Code::Unimplemented,
        EngineError::Locked { .. }
        | EngineError::Absent { .. }
        | EngineError::ReadOnly { .. }
        | EngineError::NotLeader { .. }
        | EngineError::OptionOutOfRange { .. } => Code::FailedPrecondition,
    }
}

/// The status of a failed store.
pub(crate) fn store_status(error: &StoreError) -> Status {
    let code = match error {
        StoreError::Poisoned { .. } | StoreError::NoRoom { .. } => Code::Unavailable,
        StoreError::Stopped { .. } => Code::Cancelled,
        StoreError::Corrupt { .. } => Code::DataLoss,
        StoreError::Engine(error) => engine_code(error),
        StoreError::Task { .. } => Code::Internal,
        StoreError::NewerSchema { .. }
        | StoreError::OlderSchema { .. }
        | StoreError::Migration { .. }
        | StoreError::HalfLoaded { .. }
        | StoreError::OtherIdentity { .. }
        | StoreError::BadOption { .. } => Code::FailedPrecondition,
    };
    if code != Code::FailedPrecondition {
        tracing::error!(%error, "the store failed a call");
    }
    Status::new(code, error.to_string())
}

/// A call that could not be carried out because things are not as it needs them, with the problem in its details.
pub(crate) fn precondition(problem: &Problem) -> Status {
    refusal(problem, None)
}

/// A change of the policy that was not confirmed: the problem, and what would be deleted.
pub(crate) fn shortening(shortening: &sapwood_pruner::Shortening) -> Status {
    let problem = Problem { message: shortening.to_string(), ..Problem::default() };
    let number = |(field, now, then): &(PolicyField, u32, u32)| ShortenedNumber {
        name: field.name().into(),
        now: *now,
        then: *then,
    };
    let detail = Shortening {
        numbers: shortening.numbers.iter().map(number).collect(),
        plan: Some(shortening.plan.clone().into()),
    };
    refusal(&problem.code_is(ProblemCode::NeedsConfirmation), Some(any("Shortening", &detail)))
}

fn any(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/sapwood.v1.{name}"), value: message.encode_to_vec() }
}

fn refusal(problem: &Problem, more: Option<Any>) -> Status {
    let (code, message) = (Code::FailedPrecondition, problem.message.clone());
    let details = std::iter::once(any("Problem", problem)).chain(more).collect();
    let rich = tonic_types::Status { code: code as i32, message: message.clone(), details };
    Status::with_details(code, message, rich.encode_to_vec().into())
}

#[cfg(test)]
mod tests {
    use sapwood_types::{BlockHash, BlockMark};

    use super::*;

    #[test]
    fn the_rival_is_named() {
        let (mine, rival) = (TxId([1; 32]), Spender::new(TxId([2; 32]), 3));
        let outpoint = OutPoint::new(TxId([4; 32]), 5);
        let refusal = SpendRefusal::Spent { by: rival, mined_at: Some(Height(0)) };
        let error =
            CreateError::Inputs { txid: mine, inputs: vec![InputRefusal { vin: 7, outpoint, refusal }] };
        let problem = error.as_problem();
        assert_eq!(
            (problem.code(), problem.message.as_str()),
            (ProblemCode::InputsRefused, error.to_string().as_str())
        );
        let input = &problem.inputs[0];
        assert_eq!((input.vin, input.code(), input.height), (7, ProblemCode::Spent, Some(0)));
        assert_eq!(input.spender.clone().unwrap().read(), Ok(rival));
        assert_eq!(input.outpoint.clone().unwrap().read(), Ok(outpoint));
    }

    #[test]
    fn a_precondition_carries_its_problem_as_other_libraries_expect_it() {
        let last = BlockMark { id: 1, height: Height(9), hash: BlockHash([1; 32]) };
        let error = ChainError::Rollback(RollbackError::NotBelow { target: Height(10), last });
        let problem = chain_problem(&error).unwrap();
        assert_eq!((problem.code(), problem.height), (ProblemCode::NotBelow, Some(9)));
        let status = precondition(&problem);
        let rich = tonic_types::Status::decode(status.details()).unwrap();
        assert_eq!((rich.code, rich.message.as_str()), (9, status.message()));
        assert_eq!(Problem::decode(&rich.details[0].value[..]).unwrap(), problem);
    }

    #[test]
    fn a_block_for_which_no_height_or_number_is_left_says_so() {
        let last = BlockMark { id: 1, height: Height::MAX, hash: BlockHash([1; 32]) };
        let (hash, height) = (BlockHash([2; 32]), Height::MAX);
        let code_and_height = |error| {
            let problem = chain_problem(&ChainError::Apply(error)).unwrap();
            (problem.code(), problem.height)
        };
        let error = ApplyError::NoHeightLeft { hash, height, last };
        assert_eq!(code_and_height(error), (ProblemCode::NoHeightLeft, Some(u32::MAX)));
        let error = ApplyError::NoBlockIdLeft { hash, height };
        assert_eq!(code_and_height(error), (ProblemCode::NoBlockIdLeft, None));
    }

    #[test]
    fn a_failed_store_is_a_status() {
        let poisoned = StoreError::Poisoned { cause: "disk full".into() };
        for error in [ChainError::Store(poisoned.clone()), ChainError::Apply(ApplyError::Store(poisoned))] {
            assert_eq!(chain_problem(&error).unwrap_err().code(), Code::Unavailable);
        }
    }
}
