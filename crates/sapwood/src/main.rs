//! The `sapwood` command.

mod bench;
mod cli;
mod client;
mod command;
mod config;
mod node;
mod show;
mod status;

/// Records are many small pieces of memory that come and go with every block. The system's allocator takes a sixth of the time
/// of applying one; this one does not show.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let cli = cli::Cli::read();
    let format = cli.log_format();
    let code = match cli.run() {
        Ok(code) => code,
        Err(error) => {
            cli::complain(format, &error);
            1
        }
    };
    node::exit(code)
}
