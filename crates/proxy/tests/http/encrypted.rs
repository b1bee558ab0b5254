//! TLS on either side.

use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use admission::{EgressOrder, Policy};
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proxy::admin::GateView;
use proxy::http::{UplinkRate, UplinkSettings};
use proxy::tls::{Acceptor, Connector, Downstream, DownstreamMode, Identity, Upstream, UpstreamMode};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::site::{Site, counted, full, gate, one_at_a_time, service};

/// A certificate for `localhost` and its key, in files of this folder.
fn identity(folder: &Path) -> Identity {
    identity_of("localhost", folder)
}

/// A certificate for this host and its key.
fn identity_of(host: &str, folder: &Path) -> Identity {
    identity_with(&rcgen::PKCS_ECDSA_P256_SHA256, &[host], folder)
}

/// A certificate for these hosts and its key, of this kind.
fn identity_with(kind: &'static rcgen::SignatureAlgorithm, hosts: &[&str], folder: &Path) -> Identity {
    use std::os::unix::fs::PermissionsExt;
    let key = rcgen::KeyPair::generate_for(kind).unwrap();
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let stem = format!("{}-{kind:?}", hosts[0]);
    let certificate = rcgen::CertificateParams::new(hosts).unwrap().self_signed(&key).unwrap();
    let file = |kind: &str| folder.join(format!("{stem}.{kind}"));
    let identity = Identity { certificate: file("pem"), key: file("key") };
    std::fs::write(&identity.certificate, certificate.pem()).unwrap();
    std::fs::write(&identity.key, key.serialize_pem()).unwrap();
    std::fs::set_permissions(&identity.key, std::fs::Permissions::from_mode(0o600)).unwrap();
    identity
}

fn acceptor(identity: &Identity) -> Arc<Acceptor> {
    acceptor_of(slice::from_ref(identity))
}

fn acceptor_of(identities: &[Identity]) -> Arc<Acceptor> {
    let settings =
        Downstream { mode: DownstreamMode::Require, identities: identities.to_vec(), client_ca: None };
    Arc::new(Acceptor::for_http(&settings).unwrap())
}

async fn connect(
    site: &Site,
    identity: &Identity,
    protocol: &[u8],
) -> tokio_rustls::client::TlsStream<TcpStream> {
    connect_to("localhost", site, identity, protocol).await.unwrap()
}

/// Connects as a client that asks for this host and trusts only this certificate.
async fn connect_to(
    host: &'static str,
    site: &Site,
    identity: &Identity,
    protocol: &[u8],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let provider = rustls::crypto::ring::default_provider();
    connect_with(provider, host, site, identity, protocol).await
}

/// Connects with the algorithms of this provider, as a client that asks for this host and trusts only this
/// certificate.
async fn connect_with(
    provider: CryptoProvider,
    host: &'static str,
    site: &Site,
    identity: &Identity,
    protocol: &[u8],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    use rustls::pki_types::pem::PemObject;
    let certificate = rustls::pki_types::CertificateDer::from_pem_file(&identity.certificate).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let socket = TcpStream::connect(site.address).await.unwrap();
    let name = ServerName::try_from(host).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await
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

/// Asks for so many bytes over a connection of its own, up to the response's head.
async fn ask(site: &Site, identity: &Identity, protocol: &[u8], bytes: usize) -> Incoming {
    let stream = TokioIo::new(connect(site, identity, protocol).await);
    let request = Request::get(format!("https://localhost/{bytes}")).header("host", "localhost");
    let request = request.body(Full::<Bytes>::default()).unwrap();
    if protocol == b"h2" {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap().into_body()
    } else {
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap().into_body()
    }
}

#[tokio::test]
async fn over_tls_too_the_response_with_the_fewest_bytes_remaining_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let identity = identity(folder.path());
    let answer = async |request: Request<Incoming>| {
        Response::new(full(vec![7; request.uri().path()[1..].parse().unwrap()]))
    };
    let origin = service(answer).await;
    for protocol in [&b"http/1.1"[..], b"h2"] {
        let tls = acceptor(&identity);
        let site = gate(Policy::default(), &[origin], |settings| {
            let (rate, order) = (UplinkRate::Set(8_000_000), EgressOrder::ShortestRemaining);
            (settings.tls, settings.uplink) = (Some(tls), Some(UplinkSettings::new(rate, order)));
        })
        .await;
        let large = AtomicUsize::new(0);
        let download = async {
            let mut body = ask(&site, &identity, protocol, 2_000_000).await;
            while let Some(frame) = body.frame().await {
                large.fetch_add(frame.unwrap().into_data().unwrap().len(), Ordering::SeqCst);
            }
        };
        let overtaken = async {
            while large.load(Ordering::SeqCst) < 50_000 {
                tokio::task::yield_now().await;
            }
            let small = ask(&site, &identity, protocol, 700_000).await.collect().await.unwrap();
            assert_eq!(small.to_bytes().len(), 700_000);
            large.load(Ordering::SeqCst)
        };
        let ((), got) = tokio::join!(download, overtaken);
        assert!(got < 500_000, "{got} over {}", String::from_utf8_lossy(protocol));
    }
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

#[tokio::test]
async fn each_client_is_shown_the_certificate_of_the_name_that_it_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let identities = [&["localhost", "127.0.0.1"][..], &["shop.example"], &["*.blog.example"]]
        .map(|hosts| identity_with(&rcgen::PKCS_ECDSA_P256_SHA256, hosts, folder.path()));
    let answer = async |_| Response::new(full("a page"));
    let change = |settings: &mut proxy::http::Settings| settings.tls = Some(acceptor_of(&identities));
    let site = gate(one_at_a_time(), &[service(answer).await], change).await;
    let asked = [
        ("localhost", 0),
        ("shop.example", 1),
        ("SHOP.example", 1),
        ("anna.blog.example", 2),
        ("otto.blog.example", 2),
    ];
    for (host, shown) in asked {
        for (number, identity) in identities.iter().enumerate() {
            let connected = connect_to(host, &site, identity, b"http/1.1").await;
            assert_eq!(connected.is_ok(), number == shown, "{host} {number}: {connected:?}");
        }
    }
    // A client that connects by address asks for no name, and is shown the first; for a name that none is
    // for, this client takes none.
    for (number, identity) in identities.iter().enumerate() {
        let connected = connect_to("127.0.0.1", &site, identity, b"http/1.1").await;
        assert_eq!(connected.is_ok(), number == 0, "{number}: {connected:?}");
        assert!(connect_to("else.example", &site, identity, b"http/1.1").await.is_err());
    }
}

/// One that can verify signatures of this scheme only.
fn only(scheme: SignatureScheme) -> CryptoProvider {
    let all = rustls::crypto::ring::default_provider();
    let mapping = all.signature_verification_algorithms.mapping.iter().filter(|(known, _)| *known == scheme);
    let mapping: &'static [_] = mapping.copied().collect::<Vec<_>>().leak();
    let algorithms = WebPkiSupportedAlgorithms { all: mapping[0].1, mapping };
    CryptoProvider { signature_verification_algorithms: algorithms, ..all }
}

#[tokio::test]
async fn of_several_certificates_for_one_name_a_client_is_shown_one_that_it_can_verify() {
    let folder = tempfile::tempdir().unwrap();
    let kinds = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ED25519];
    let identities = kinds.map(|kind| identity_with(kind, &["shop.example"], folder.path()));
    let answer = async |_| Response::new(full("a page"));
    let change = |settings: &mut proxy::http::Settings| settings.tls = Some(acceptor_of(&identities));
    let site = gate(one_at_a_time(), &[service(answer).await], change).await;
    for (number, scheme) in
        [SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519].into_iter().enumerate()
    {
        let connected =
            connect_with(only(scheme), "shop.example", &site, &identities[number], b"http/1.1").await;
        assert!(connected.is_ok(), "{scheme:?}: {connected:?}");
    }
    let first = connect_to("shop.example", &site, &identities[0], b"http/1.1").await;
    assert!(first.is_ok(), "a client that can verify both: {first:?}");
}

#[test]
fn of_several_certificates_the_faulty_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["localhost", "shop.example"].map(|host| identity_of(host, folder.path()));
    let mixed = Identity { key: first.key.clone(), ..second.clone() };
    let settings =
        Downstream { mode: DownstreamMode::Require, identities: vec![first, mixed.clone()], client_ca: None };
    let fault = Acceptor::for_http(&settings).unwrap_err();
    assert!(fault.to_string().contains(&mixed.key.display().to_string()), "{fault}");
}

#[tokio::test]
async fn who_never_ends_a_handshake_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let tls = acceptor(&identity(folder.path()));
    let site = gate(one_at_a_time(), &[service(async |_| Response::new(full(""))).await], |settings| {
        settings.tls = Some(tls);
        settings.header_timeout = std::time::Duration::from_millis(100);
    })
    .await;
    // Nothing at all, and the beginning of a ClientHello.
    for said in ["", "\x16\x03\x01\x02\x00\x01"] {
        let mut client = crate::site::Client::connect(&site).await;
        client.send(said).await;
        assert!(client.is_over().await, "{said:?}");
    }
    assert_eq!(site.status.clients().connected, 0);
}
