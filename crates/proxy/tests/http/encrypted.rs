//! TLS on either side.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proxy::admin::GateView;
use proxy::tls::{Acceptor, Connector, Downstream, DownstreamMode, Identity, Upstream, UpstreamMode};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use crate::site::{Site, full, gate, one_at_a_time, service};

/// A certificate for `localhost` and its key, in files of this folder.
fn identity(folder: &Path) -> Identity {
    use std::os::unix::fs::PermissionsExt;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let identity = Identity { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
    std::fs::write(&identity.certificate, made.cert.pem()).unwrap();
    std::fs::write(&identity.key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&identity.key, std::fs::Permissions::from_mode(0o600)).unwrap();
    identity
}

fn acceptor(identity: &Identity) -> Arc<Acceptor> {
    let settings = Downstream { mode: DownstreamMode::Require, identity: identity.clone(), client_ca: None };
    Arc::new(Acceptor::for_http(&settings).unwrap())
}

async fn connect(
    site: &Site,
    identity: &Identity,
    protocol: &[u8],
) -> tokio_rustls::client::TlsStream<TcpStream> {
    use rustls::pki_types::pem::PemObject;
    let certificate = rustls::pki_types::CertificateDer::from_pem_file(&identity.certificate).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let socket = TcpStream::connect(site.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap()
}

#[tokio::test]
async fn clients_agree_on_a_version_by_name_and_the_service_hears_of_tls() {
    let folder = tempfile::tempdir().unwrap();
    let identity = identity(folder.path());
    let answer = async |request: Request<Incoming>| {
        Response::new(full(request.headers()["x-forwarded-proto"].to_str().unwrap().to_owned()))
    };
    let tls = acceptor(&identity);
    let site = gate(one_at_a_time(), &[service(answer).await], |settings| settings.tls = Some(tls)).await;
    let request = || {
        Request::get("https://localhost/").header("host", "localhost").body(Full::<Bytes>::default()).unwrap()
    };

    let stream = connect(&site, &identity, b"h2").await;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(request()).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "https");

    let stream = connect(&site, &identity, b"http/1.1").await;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(request()).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "https");
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn a_service_behind_tls_is_verified_and_agreed_with() {
    let folder = tempfile::tempdir().unwrap();
    let identity = identity(folder.path());
    let answer = async |_| Response::new(full("from behind two"));
    // A gate is as good a server with TLS as any.
    let tls = acceptor(&identity);
    let inner = gate(one_at_a_time(), &[service(answer).await], |settings| settings.tls = Some(tls)).await;
    let connector = |mode| {
        let settings = Upstream { mode, ca: Some(identity.certificate.clone()), identity: None };
        Arc::new(Connector::for_http(&settings).unwrap())
    };
    for (mode, host, status) in [
        (UpstreamMode::VerifyFull, "localhost", 200),
        (UpstreamMode::VerifyCa, "127.0.0.1", 200),
        (UpstreamMode::VerifyFull, "127.0.0.1", 502),
    ] {
        let outer = gate(one_at_a_time(), &[inner.address], |settings| {
            settings.upstream = vec![proxy::Address::inet(host, inner.address.port())];
            settings.upstream_tls = Some(connector(mode));
        })
        .await;
        let mut client = crate::site::Client::connect(&outer).await;
        let told = client.get("/").await;
        assert_eq!(told.status, status, "{mode:?} {host}");
        if status == 200 {
            assert_eq!(told.text(), "from behind two");
            // Both speak HTTP/2, so that one connection is enough.
            for _ in 0..5 {
                assert_eq!(client.get("/").await.status, 200);
            }
            assert_eq!(outer.status.pools()[0].connections, 1);
        }
    }
}

/// A way to an address that counts the connections that go there.
async fn counted(to: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut to = TcpStream::connect(to).await?;
                tokio::io::copy_bidirectional(&mut from, &mut to).await
            });
        }
    });
    (address, accepted)
}

/// What a service behind TLS agrees on is one connection for all requests, and none for upgrades.
#[tokio::test]
async fn a_service_that_agrees_on_http_2_has_one_connection_and_upgrades_on_others() {
    let folder = tempfile::tempdir().unwrap();
    let identity = identity(folder.path());
    let answer = async |mut request: Request<Incoming>| {
        if request.headers().get("upgrade").is_none() {
            return Response::new(full("plain"));
        }
        let client = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut socket = TokioIo::new(client.await.unwrap());
            let mut bytes = [0; 5];
            socket.read_exact(&mut bytes).await.unwrap();
            socket.write_all(&bytes).await.unwrap();
        });
        Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "echo")
            .body(full(""))
            .unwrap()
    };
    let tls = acceptor(&identity);
    let inner = gate(one_at_a_time(), &[service(answer).await], |settings| settings.tls = Some(tls)).await;
    let settings =
        Upstream { mode: UpstreamMode::VerifyFull, ca: Some(identity.certificate.clone()), identity: None };
    let connector = Arc::new(Connector::for_http(&settings).unwrap());
    let (way, accepted) = counted(inner.address).await;
    let outer = gate(one_at_a_time(), &[way], |settings| {
        settings.upstream = vec![proxy::Address::inet("localhost", way.port())];
        settings.upstream_tls = Some(connector);
    })
    .await;
    let mut client = crate::site::Client::connect(&outer).await;
    for _ in 0..5 {
        assert_eq!(client.get("/").await.text(), "plain");
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
    client.send("GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n").await;
    assert_eq!(client.head().await.unwrap().status, 101);
    client.send("hello").await;
    assert_eq!(client.exactly(5).await, b"hello");
}
