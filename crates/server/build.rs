//! Compiles the `.proto` files: messages and services, the descriptors for reflection, and the list of methods that only read.

use std::{env, error::Error, fs, path::PathBuf};

const PROTO_ROOT: &str = "../../proto";
const FILES: [&str; 3] = ["sapwood/v1/chain.proto", "sapwood/v1/pruner.proto", "sapwood/v1/utxo.proto"];

/// `google.protobuf.MethodOptions.IdempotencyLevel.NO_SIDE_EFFECTS`.
const NO_SIDE_EFFECTS: i32 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO_ROOT}");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut compiler = protox::Compiler::new([PROTO_ROOT])?;
    compiler.include_imports(true).include_source_info(true).open_files(FILES)?;
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    let descriptors = compiler.file_descriptor_set();

    // Which methods only read is said in the .proto files, where clients see it too. All others need the admin token.
    let mut reads = String::from(
        "/// The paths of all methods that change nothing.\npub(crate) const READS: &[&str] = &[\n",
    );
    for file in &descriptors.file {
        for service in &file.service {
            for method in &service.method {
                let level = method.options.as_ref().and_then(|options| options.idempotency_level);
                if level == Some(NO_SIDE_EFFECTS) {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    reads.push_str(&format!("    {path:?},\n"));
                }
            }
        }
    }
    reads.push_str("];\n");
    fs::write(out.join("reads.rs"), reads)?;

    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::grpc::codec::MessageCodec")
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
