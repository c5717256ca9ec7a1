//! Where external bodies are kept, and how to get there.

use std::{fmt, path::PathBuf, sync::Once, time::Duration};

use object_store::{
    BackoffConfig, ClientOptions, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
};

use super::BodyError;

/// Where bodies are kept.
#[derive(Clone, Debug)]
pub enum BodyLocation {
    /// In a directory.
    Directory(PathBuf),
    /// In a bucket of an S3 server.
    S3(S3Config),
}

/// How to reach an S3 server.
#[derive(Clone)]
pub struct S3Config {
    /// The address of the server. Nothing for Amazon's own of the region.
    pub endpoint: Option<String>,
    /// The bucket. It must exist.
    pub bucket: String,
    /// The region. Servers other than Amazon's mostly take any.
    pub region: String,
    /// Key and secret. Nothing takes what the environment or the machine offers.
    pub credentials: Option<S3Credentials>,
    /// Allow an address without TLS.
    pub allow_http: bool,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long one attempt may take.
    pub request_timeout: Duration,
    /// How often a failed attempt is repeated. What is refused is not repeated.
    pub retries: usize,
}

impl S3Config {
    /// A bucket with everything else as it comes.
    pub fn bucket(bucket: impl Into<String>) -> Self {
        Self {
            endpoint: None,
            bucket: bucket.into(),
            region: "us-east-1".into(),
            credentials: None,
            allow_http: false,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            retries: 3,
        }
    }
}

impl fmt::Debug for S3Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Config")
            .field("endpoint", &self.endpoint)
            .field("bucket", &self.bucket)
            .field("region", &self.region)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

/// Key and secret.
#[derive(Clone)]
pub struct S3Credentials {
    /// The key, which is no secret.
    pub access_key_id: String,
    /// The secret. Never shown.
    pub secret_access_key: String,
}

impl fmt::Debug for S3Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with a secret", self.access_key_id)
    }
}

pub(super) fn s3(config: &S3Config) -> Result<AmazonS3, BodyError> {
    choose_tls();
    let client = ClientOptions::new()
        .with_allow_http(config.allow_http)
        .with_connect_timeout(config.connect_timeout)
        .with_timeout(config.request_timeout);
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: config.retries,
        retry_timeout: config.request_timeout.saturating_mul(config.retries as u32 + 1),
    };
    let builder = match &config.credentials {
        None => AmazonS3Builder::from_env(),
        Some(S3Credentials { access_key_id, secret_access_key }) => {
            AmazonS3Builder::new().with_access_key_id(access_key_id).with_secret_access_key(secret_access_key)
        }
    };
    let mut builder = builder
        .with_bucket_name(&config.bucket)
        .with_region(&config.region)
        // One request for each object: an answer that is about one object only, understood by every server.
        .with_disable_bulk_delete(true)
        .with_client_options(client)
        .with_retry(retry);
    if let Some(endpoint) = &config.endpoint {
        builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(false);
    }
    builder.build().map_err(|cause| BodyError::Configuration {
        problem: format!("the bucket {} cannot be used: {cause}", config.bucket),
    })
}

/// The HTTP client is built without a TLS implementation of its own, because its default takes minutes to compile, and panics if the
/// process has none. Whoever has installed one before is left alone.
fn choose_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Fails only if there is one already.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    });
}
