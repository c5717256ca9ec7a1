//! TLS: a certificate and its key, read from files.

use std::{fmt, io, path::PathBuf, sync::Arc};

use parking_lot::RwLock;
use tokio::net::TcpStream;
use tokio_rustls::{
    rustls::{
        self, ServerConfig,
        pki_types::{
            CertificateDer, PrivateKeyDer,
            pem::{self, PemObject},
        },
    },
    server::TlsStream,
};

/// Where certificate and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// A PEM file with the certificate, and after it those that lead to one the clients trust.
    pub certificate: PathBuf,
    /// A PEM file with the certificate's private key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Reads both, and tells whether TLS can be spoken with them.
    ///
    /// # Errors
    /// If it cannot.
    pub fn check(&self) -> Result<(), TlsError> {
        TlsReload::acceptor(self, &[]).map(drop)
    }
}

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", .file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A file is not PEM.
    #[error("{} is not a good PEM file: {cause}", .file.display())]
    NotPem {
        /// Which.
        file: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// A file has nothing of what it should have.
    #[error("{} has no {wanted}: it must have a PEM section `{section}`", .file.display())]
    Empty {
        /// Which.
        file: PathBuf,
        /// What it should have.
        wanted: &'static str,
        /// How that begins.
        section: &'static str,
    },
    /// They are well formed and cannot be used.
    #[error("certificate {} and key {} cannot be used together: {cause}", .files.certificate.display(), .files.key.display())]
    Unusable {
        /// Which.
        files: TlsFiles,
        /// Why.
        cause: rustls::Error,
    },
}

/// Speaks TLS with a certificate, which can be read again while the server runs. Clones are the same one.
#[derive(Clone)]
pub struct TlsReload {
    acceptor: Arc<RwLock<tokio_rustls::TlsAcceptor>>,
    protocols: Arc<[Vec<u8>]>,
}

impl fmt::Debug for TlsReload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsReload")
    }
}

impl TlsReload {
    /// Reads certificate and key, and offers these protocols.
    pub(super) fn load(files: &TlsFiles, protocols: &[&str]) -> Result<Self, TlsError> {
        let protocols: Arc<[Vec<u8>]> =
            protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let acceptor = Self::acceptor(files, &protocols)?;
        Ok(Self { acceptor: Arc::new(RwLock::new(acceptor)), protocols })
    }

    /// Reads certificate and key again; new connections get them. If that fails, those in use stay.
    pub fn reload(&self, files: &TlsFiles) -> Result<(), TlsError> {
        let acceptor = Self::acceptor(files, &self.protocols)?;
        *self.acceptor.write() = acceptor;
        Ok(())
    }

    fn acceptor(files: &TlsFiles, protocols: &[Vec<u8>]) -> Result<tokio_rustls::TlsAcceptor, TlsError> {
        let read = |file: &PathBuf| {
            std::fs::read(file).map_err(|cause| TlsError::Unreadable { file: file.clone(), cause })
        };
        let not_pem = |file: &PathBuf, cause: pem::Error| TlsError::NotPem {
            file: file.clone(),
            cause: cause.to_string(),
        };
        let file = &files.certificate;
        let chain = CertificateDer::pem_slice_iter(&read(file)?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|cause| not_pem(file, cause))?;
        if chain.is_empty() {
            let (wanted, section) = ("certificate", "-----BEGIN CERTIFICATE-----");
            return Err(TlsError::Empty { file: file.clone(), wanted, section });
        }
        let file = &files.key;
        let key = PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|cause| match cause {
            pem::Error::NoItemsFound => {
                let (wanted, section) = ("private key", "-----BEGIN PRIVATE KEY-----");
                TlsError::Empty { file: file.clone(), wanted, section }
            }
            other => not_pem(file, other),
        })?;
        let unusable = |cause| TlsError::Unusable { files: files.clone(), cause };
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(unusable)?
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .map_err(unusable)?;
        config.alpn_protocols = protocols.to_vec();
        Ok(tokio_rustls::TlsAcceptor::from(Arc::new(config)))
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = self.acceptor.read().clone();
        acceptor.accept(stream).await
    }
}
