//! Which certificates of a node are trusted, if some are named.

use std::{path::Path, sync::Arc};

use anyhow::{Context, ensure};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};

/// Accepts a node that shows one of the named certificates itself, under any name and whatever its dates: who has its key is known. Others
/// have to come from one of them as their authority, and be for the node's name.
#[derive(Debug)]
struct Named {
    certificates: Vec<CertificateDer<'static>>,
    /// `None` if only the certificates themselves will do.
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

/// Trusts the certificates of a file, and what comes from them.
pub(super) fn authority(file: &Path) -> anyhow::Result<ClientConfig> {
    let certificates = read(file)?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    ensure!(!roots.is_empty(), "{} has no certificate that can be read", file.display());
    let provider = Arc::new(ring::default_provider());
    let authority = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let authority = Some(authority.build().context("trusting the certificates of --ca")?);
    Named { certificates, authority, provider }.config()
}

/// Trusts the certificates of a file, and nothing else.
pub(super) fn exactly(file: &Path) -> anyhow::Result<ClientConfig> {
    Named { certificates: read(file)?, authority: None, provider: Arc::new(ring::default_provider()) }
        .config()
}

fn read(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let pem = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.with_context(|| format!("{} is not PEM", file.display()))?;
    ensure!(!found.is_empty(), "{} has no certificate", file.display());
    Ok(found)
}

impl Named {
    fn config(self) -> anyhow::Result<ClientConfig> {
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider));
        let config = config.with_safe_default_protocol_versions().context("choosing versions of TLS")?;
        let config = config.dangerous().with_custom_certificate_verifier(Arc::new(self));
        Ok(config.with_no_client_auth())
    }
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.certificates.contains(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        match &self.authority {
            Some(authority) => {
                authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns what TLS refused, if that is why a request failed.
pub(super) fn refused<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // An I/O error names the cause of what is in it, but not what is in it.
        next = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn refusal_is_found_inside_of_io_errors() {
        let error = io::Error::other(io::Error::other(Error::DecryptError));
        assert_eq!(refused(&error), Some(&Error::DecryptError));
        assert_eq!(refused(&io::Error::other("no route to host")), None);
    }
}
