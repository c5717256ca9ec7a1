//! Version 4 names the program that wrote the schema, so that an older one can say which is needed.

use sapwood_types::DecodeError;

use super::{Invalid, Next, PROGRAM, Part, Step, WRITTEN_BY_KEY};
use crate::{StoreError, core::corrupt, engine::Table, read::Snapshot};

pub(super) struct NameProgram;

impl Step for NameProgram {
    fn version(&self) -> u32 {
        4
    }

    fn summary(&self) -> &'static str {
        "the program that wrote the schema is named"
    }

    fn run(&self, part: &mut Part<'_>) -> Result<Next, StoreError> {
        part.writes.put(Table::Meta, WRITTEN_BY_KEY, PROGRAM.as_bytes());
        Ok(Next::Done)
    }

    fn validate(&self, rows: &Snapshot<'_>, _: u64) -> Result<(), Invalid> {
        match rows.get(Table::Meta, WRITTEN_BY_KEY)? {
            Some(_) => Ok(()),
            None => {
                let cause = DecodeError::Inconsistent { what: "program", problem: "it is missing" };
                Err(corrupt("the program that wrote the schema", cause).into())
            }
        }
    }
}
