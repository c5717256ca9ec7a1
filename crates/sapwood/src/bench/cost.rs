//! What a block costs: core time of all threads, what the engine is asked for, what is written.

use std::sync::Arc;

use sapwood_chain::LONGEST_RUN;

use super::{
    chain::BenchChain,
    counting::AskedSoFar,
    measure::{cpu_time, thread_cpu_time, written_bytes},
    progress,
};

/// What blocks in a row cost, until nothing is left to flush or compact.
#[derive(Debug, Default)]
pub(super) struct Cost {
    pub(super) core_ms_per_block: f64,
    pub(super) tx_per_core_s: f64,
    pub(super) engine_rows_per_tx: f64,
    pub(super) engine_bytes_per_tx: f64,
    pub(super) written_bytes_per_tx: f64,
    pub(super) write_amplification: f64,
    pub(super) cold_reads_per_block: f64,
}

/// Applies blocks in a row and measures what all of it costs. Making the blocks does not count.
pub(super) async fn cost(chain: &mut BenchChain, blocks: usize, quiet: bool) -> anyhow::Result<Cost> {
    chain.store.settle_disk().await?;
    let bar = progress("what a block costs", blocks, quiet)?;
    let (cpu, written, asked) = (cpu_time(), written_bytes(), chain.asked.so_far());
    let (mut making, mut txs, mut reads) = (thread_cpu_time() - thread_cpu_time(), 0, 0);
    let mut left = blocks;
    while left > 0 {
        let length = LONGEST_RUN.min(left);
        let started = thread_cpu_time();
        let run: Vec<_> = (0..length).map(|_| Arc::new(chain.workload.next_block())).collect();
        making += thread_cpu_time() - started;
        txs += run.iter().map(|block| block.txs.len()).sum::<usize>();
        let before: AskedSoFar = chain.asked.so_far();
        chain.apply_run(&run).await?;
        reads += chain.asked.so_far().since(before).records_read;
        left -= length;
        bar.inc(length as u64);
    }
    chain.store.settle_disk().await?;
    bar.finish_and_clear();
    let core = (cpu_time() - cpu).saturating_sub(making).as_secs_f64();
    let (written, asked) = (written_bytes() - written, chain.asked.so_far().since(asked));
    let per_tx = |amount: u64| amount as f64 / txs.max(1) as f64;
    Ok(Cost {
        core_ms_per_block: core * 1000.0 / blocks.max(1) as f64,
        tx_per_core_s: txs as f64 / core,
        engine_rows_per_tx: per_tx(asked.rows_written),
        engine_bytes_per_tx: per_tx(asked.bytes_written),
        written_bytes_per_tx: per_tx(written),
        write_amplification: written as f64 / asked.bytes_written.max(1) as f64,
        cold_reads_per_block: reads as f64 / blocks.max(1) as f64,
    })
}
