//! Clients with identities, and the rules about their calls.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use emmer::SiloBuilder;
use emmer::access::{Access, Credentials, Identity, TokenError};
use emmer::calls::ContextKey;
use emmer::filters::{Filter, FilterCall, Next, Outcome};
use emmer::options::ClientBuilder;
use emmer::options::Limits;
use emmer::prelude::*;
use emmer::store::SystemStore;
use emmer::tables::GrainId;
use emmer_wire::{
    CallChain, ChainLink, ConnectionLimits, FrameKind, HANDSHAKE_BYTES_MAX, Hello, PeerKind,
    RequestContext, RequestFlags, RequestHeader, decode_frame, encode_hello, encode_request,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{settle, store};

/// Tells the identity of its caller.
#[grain_interface(key = String)]
trait Desk {
    /// `name role`, of the identity that has come along.
    async fn who(&self) -> String;
    /// Returns the caller as another desk sees it.
    async fn who_there(&self, other: String) -> String;
    /// As the vault sees it.
    async fn who_inside(&self) -> String;
    async fn shred(&mut self);
}

/// As a later version has it.
mod newer {
    use emmer::prelude::*;

    #[grain_interface(key = String)]
    pub(super) trait Desk {
        async fn file(&self);
    }
}

/// For the grains of the cluster.
#[grain_interface(key = String, internal)]
trait Vault {
    async fn who(&self) -> String;
}

#[derive(Grain)]
struct DeskGrain {
    #[context]
    ctx: Ctx,
}

fn caller() -> String {
    Identity::of_caller().map_or_else(
        || "nobody".to_owned(),
        |identity| format!("{identity} {}", identity.get("role").unwrap_or("-")),
    )
}

#[grain]
impl Desk for DeskGrain {
    async fn who(&self) -> String {
        caller()
    }

    async fn who_there(&self, other: String) -> String {
        self.ctx.grains().grain::<dyn Desk>(other).who().await.unwrap()
    }

    async fn who_inside(&self) -> String {
        let vault = self.ctx.grains().grain::<dyn Vault>("gold");
        vault.who().await.unwrap_or_else(|error| error.to_string())
    }

    async fn shred(&mut self) {}
}

#[derive(Grain, Default)]
struct VaultGrain {}

#[grain]
impl Vault for VaultGrain {
    async fn who(&self) -> String {
        caller()
    }
}

/// `name:role` is a token; an empty name is refused.
async fn by_token(shown: Credentials) -> Result<Option<Identity>, String> {
    let Some((name, role)) = shown.token().and_then(|token| token.split_once(':')) else {
        return Ok(None);
    };
    match name {
        "" => Err("this token has no owner".to_owned()),
        "bomb" => panic!("boom"),
        "sloth" => pending().await,
        name => Ok(Some(Identity::new(name).claim("role", role))),
    }
}

fn desks(store: &Arc<dyn SystemStore>) -> SiloBuilder {
    Silo::builder()
        .store(store.clone())
        .gateway("127.0.0.1:0")
        .configure(|options| options.connect_timeout = Duration::from_millis(500))
        .authenticate(by_token)
        .host::<dyn Desk, DeskGrain>()
        .on_terminate(|_| {})
}

fn shows(store: &Arc<dyn SystemStore>, token: &'static str) -> ClientBuilder {
    let client = Client::builder().store(store.clone()).wait_for_gateway(Duration::ZERO);
    client.token(move || async move { Ok(token.to_owned()) })
}

async fn client(store: &Arc<dyn SystemStore>, token: &'static str) -> Client {
    shows(store, token).connect().await.unwrap()
}

fn rejected<T, E: std::fmt::Debug + std::fmt::Display>(called: Result<T, CallError<E>>) -> String {
    match called {
        Err(error @ CallError::Rejected { .. }) => error.to_string(),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was allowed"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_identity_of_a_client_goes_along_with_all_that_follows() {
    struct Notes(Arc<Mutex<Vec<String>>>);
    impl Filter for Notes {
        async fn call(&self, call: FilterCall, next: Next<'_>) -> Outcome {
            let who =
                call.identity().map_or_else(|| "nobody".to_owned(), |who| who.name().to_owned());
            self.0.lock().unwrap().push(format!("{} {who}", call.method()));
            next.run(call).await
        }
    }
    let (store, notes) = (store(), Arc::default());
    let silo = || desks(&store).host::<dyn Vault, VaultGrain>();
    let silo = || silo().filter_incoming(Notes(Arc::clone(&notes)));
    let silos = [silo().start().await.unwrap(), silo().start().await.unwrap()];
    settle(&silos, 2).await;
    let ann = client(&store, "ann:clerk").await;
    for key in 0..20 {
        let desk = ann.grain::<dyn Desk>(key.to_string());
        assert_eq!(desk.who().await.unwrap(), "ann clerk");
        assert_eq!(desk.who_there((key + 1).to_string()).await.unwrap(), "ann clerk");
    }
    let desk = ann.grain::<dyn Desk>("1");
    assert_eq!(desk.who_inside().await.unwrap(), "ann clerk");
    // A client without a name, and the cluster itself.
    let nobody = client(&store, "none").await;
    assert_eq!(nobody.grain::<dyn Desk>("1").who().await.unwrap(), "nobody");
    assert_eq!(silos[0].grains().grain::<dyn Desk>("1").who().await.unwrap(), "nobody");
    let notes = notes.lock().unwrap();
    assert_eq!(notes.iter().filter(|note| **note == "who ann").count(), 41);
    assert_eq!(notes.iter().filter(|note| **note == "who nobody").count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_the_application_refuses_is_told_so_and_others_get_in() {
    let store = store();
    let silo = desks(&store).start().await.unwrap();
    let refused = |token| {
        let client = shows(&store, token).connect();
        async { client.await.err().unwrap().to_string() }
    };
    let told = refused(":clerk").await;
    assert!(told.ends_with("refused the connection: this token has no owner"), "{told}");
    assert!(refused("bomb:x").await.ends_with("the silo could not check who this is"));
    // One that is never answered costs its own time only.
    let (sloth, ann) = tokio::join!(refused("sloth:x"), client(&store, "ann:clerk"));
    assert!(sloth.ends_with("the silo could not check in time who this is"), "{sloth}");
    assert_eq!(ann.grain::<dyn Desk>("a").who().await.unwrap(), "ann clerk");
    // Invalid tokens.
    let told = refused("").await;
    assert!(told.contains("expected 1 to 8192 bytes, it has 0"), "{told}");
    let broken = Client::builder().store(store.clone()).wait_for_gateway(Duration::ZERO);
    let broken = broken.token(|| async { Err(TokenError::new("the issuer is away")) });
    let told = broken.connect().await.err().unwrap().to_string();
    assert!(told.ends_with("there is no token to show: the issuer is away"), "{told}");
    // A source that never answers shares the time of the connection.
    let silent = Client::builder().store(store.clone()).wait_for_gateway(Duration::ZERO);
    let silent = silent.configure(|options| options.connect_timeout = Duration::from_millis(300));
    let told = silent.token(pending).connect().await.err().unwrap().to_string();
    assert!(told.contains("300ms"), "{told}");
    let long = Client::builder().store(store.clone()).wait_for_gateway(Duration::ZERO);
    let long = long.token(|| async { Ok("x".repeat(8_193)) });
    assert!(long.connect().await.err().unwrap().to_string().contains("it has 8193"));
    let longest = Client::builder().store(store.clone());
    let longest = longest.token(|| async { Ok(format!("ann:{}", "r".repeat(3_000))) });
    let longest = longest.connect().await.unwrap();
    assert!(longest.grain::<dyn Desk>("a").who().await.unwrap().ends_with("rrr"));
    // An identity that is larger than calls can take along.
    let large = Client::builder().store(store.clone()).wait_for_gateway(Duration::ZERO);
    let large = large.token(|| async { Ok(format!("ann:{}", "r".repeat(8_000))) });
    let told = large.connect().await.err().unwrap().to_string();
    assert!(told.contains("the identity cannot go along with calls"), "{told}");
    drop(silo);
}

fn ruled(builder: SiloBuilder, asked: &Arc<AtomicU64>) -> SiloBuilder {
    let asked = asked.clone();
    builder.authorize(move |call| {
        asked.fetch_add(1, Ordering::Relaxed);
        let role = call.identity().and_then(|who| who.get("role")).unwrap_or("-");
        assert_eq!((call.grain_type(), call.interface()), ("desk", "Desk"));
        match (call.method(), role) {
            ("shred", "chief") => Access::Allow,
            ("shred", _) => Access::Refuse(format!("a {role} shreds nothing")),
            ("who", "proxy") => Access::AllowAs(Identity::new("ann").claim("role", "clerk")),
            ("who", "bomb") => panic!("boom"),
            ("who_there", _) => Access::when(call.key().to_string() != "locked", "locked"),
            _ => Access::Allow,
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_applications_rules_are_asked_about_clients_and_about_nobody_else() {
    let (store, asked) = (store(), Arc::default());
    let silo = ruled(desks(&store), &asked).start().await.unwrap();
    let clerk = client(&store, "ann:clerk").await;
    let desk = clerk.grain::<dyn Desk>("a");
    assert!(rejected(desk.shred().await).ends_with("a clerk shreds nothing"));
    client(&store, "eve:chief").await.grain::<dyn Desk>("a").shred().await.unwrap();
    let proxy = client(&store, "gate:proxy").await.grain::<dyn Desk>("a");
    assert_eq!(proxy.who().await.unwrap(), "ann clerk");
    let bomb = client(&store, "x:bomb").await.grain::<dyn Desk>("a");
    assert!(rejected(bomb.who().await).contains("could not check whether this may be called"));
    let told = rejected(clerk.grain::<dyn Desk>("locked").who_there("a".to_owned()).await);
    assert!(told.ends_with("locked"), "{told}");
    assert_eq!(desk.shred().send(), Ok(()), "one that nobody waits for is refused in silence");
    assert_eq!(desk.who().await.unwrap(), "ann clerk");
    let before = asked.load(Ordering::Relaxed);
    assert_eq!(desk.who_there("b".to_owned()).await.unwrap(), "ann clerk");
    assert_eq!(asked.load(Ordering::Relaxed), before + 1, "not for the call of a grain");
    silo.grain::<dyn Desk>("a").shred().await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), before + 1, "not for the silo's own");
}

/// The client's gateway hosts nothing that is called: the silo that does looks at the calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_does_not_know_a_method_leaves_the_question_to_the_host() {
    let (store, asked) = (store(), Arc::default());
    let gateway = Silo::builder().store(store.clone()).gateway("127.0.0.1:0");
    let gateway = gateway.authenticate(by_token).on_terminate(|_| {}).start().await.unwrap();
    let host = ruled(desks(&store), &asked).host::<dyn Vault, VaultGrain>();
    let host = host.configure(|options| options.gateway = None).start().await.unwrap();
    settle(&[gateway, host], 2).await;
    let clerk = client(&store, "ann:clerk").await;
    let desk = clerk.grain::<dyn Desk>("a");
    assert!(rejected(desk.shred().await).ends_with("a clerk shreds nothing"));
    let told = rejected(clerk.grain::<dyn Vault>("gold").who().await);
    assert!(told.ends_with("Vault.who cannot be called from outside the cluster"), "{told}");
    assert_eq!(
        client(&store, "g:proxy").await.grain::<dyn Desk>("a").who().await.unwrap(),
        "ann clerk"
    );
    let before = asked.load(Ordering::Relaxed);
    assert_eq!(desk.who_inside().await.unwrap(), "ann clerk");
    assert_eq!(asked.load(Ordering::Relaxed), before + 1);
}

/// Gateways that host the grain, and gateways that do not: as much goes along through each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_sends_along_fits_through_every_gateway() {
    static NOTE: ContextKey<String> = ContextKey::new("note");
    let (store, asked) = (store(), Arc::default());
    let host = ruled(desks(&store), &asked).start().await.unwrap();
    let near = client(&store, "ann:clerk").await;
    let other = Silo::builder().store(store.clone()).gateway("127.0.0.1:0");
    let other = other.authenticate(by_token).on_terminate(|_| {}).start().await.unwrap();
    let far = Client::builder().gateways([other.gateway().unwrap().to_string()]);
    settle(&[host, other], 2).await;
    let far = far.token(|| async { Ok("ann:clerk".to_owned()) }).connect().await.unwrap();
    for bytes in [4_000, 4_092, 4_093] {
        for client in [&near, &far] {
            let call = client.grain::<dyn Desk>("a").who().with(&NOTE, "x".repeat(bytes));
            assert_eq!(call.await.is_ok(), bytes <= 4_092, "{bytes} bytes");
        }
    }
}

/// Types and methods that no silo has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_learn_nothing_of_what_there_is() {
    let store = store();
    let silo = desks(&store).host::<dyn Vault, VaultGrain>().authorize(|call| {
        let is_known = !call.method().is_empty();
        assert_eq!(is_known, !call.interface().is_empty());
        Access::when(is_known || call.key().to_string() != "a", "not for you")
    });
    let silo = silo.start().await.unwrap();
    let ann = client(&store, "ann:clerk").await;
    let unknown = |key: &str| ann.grain::<dyn Desk>(key).of("other").shred();
    assert!(rejected(unknown("a").await).ends_with("not for you"));
    let told = rejected(unknown("b").await);
    assert!(told.contains("no silo hosts") && !told.to_lowercase().contains("vault"), "{told}");
    let no_method = |key: &str| ann.grain::<dyn newer::Desk>(key).file();
    assert!(rejected(no_method("a").await).ends_with("not for you"));
    let told = rejected(no_method("b").await);
    assert!(told.contains("no silo hosts") && !told.to_lowercase().contains("vault"), "{told}");
    silo.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_internal_interface_is_called_by_grains_only() {
    let store = store();
    let silo = desks(&store).host::<dyn Vault, VaultGrain>().start().await.unwrap();
    let ann = client(&store, "ann:clerk").await;
    let told = rejected(ann.grain::<dyn Vault>("gold").who().await);
    assert!(told.ends_with("Vault.who cannot be called from outside the cluster"), "{told}");
    assert_eq!(silo.statistics().activated, 0, "nothing was activated for it");
    assert_eq!(ann.grain::<dyn Desk>("a").who_inside().await.unwrap(), "ann clerk");
    assert_eq!(silo.grain::<dyn Vault>("gold").who().await.unwrap(), "nobody");
}

/// A client writes frames by hand.
struct Forger {
    stream: TcpStream,
    out: BytesMut,
}

impl Forger {
    async fn dial(silo: &Silo) -> Self {
        let stream = TcpStream::connect(silo.gateway().unwrap()).await.unwrap();
        let mut out = BytesMut::new();
        let limits = ConnectionLimits::new(&Limits::default(), 1 << 20);
        let cluster = ClusterId::new("dev").unwrap();
        encode_hello(&mut out, &Hello::new(cluster, PeerKind::Client(7), None, limits));
        Self { stream, out }
    }

    /// Returns the bytes of the answer.
    async fn call(mut self, target: GrainId, method: &str, chain: CallChain) -> Vec<u8> {
        let header = RequestHeader {
            correlation: 1,
            target,
            method: emmer::__rt::name32(method),
            flags: RequestFlags::NONE,
            deadline_ms: 5_000,
            forwards: 0,
            expect_view: 0,
            chain,
            trace: None,
        };
        let no_arguments = |out: &mut BytesMut| {
            out.extend_from_slice(&[0x80]);
            Ok::<_, ()>(())
        };
        encode_request(&mut self.out, &header, no_arguments).unwrap();
        self.stream.write_all(&self.out).await.unwrap();
        let mut heard = BytesMut::new();
        loop {
            while let Some(frame) = decode_frame(&mut heard, HANDSHAKE_BYTES_MAX).unwrap() {
                if frame.kind == FrameKind::Response {
                    return frame.payload.to_vec();
                }
            }
            assert!(self.stream.read_buf(&mut heard).await.unwrap() > 0, "it hung up");
        }
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cannot_say_who_it_is_nor_that_a_grain_calls() {
    let store = store();
    let silo = desks(&store).host::<dyn Vault, VaultGrain>().start().await.unwrap();
    let desk = silo.grain::<dyn Desk>("a");
    let vault = silo.grain::<dyn Vault>("gold");
    let forged = RequestContext::EMPTY
        .with("emmer.identity", "root")
        .and_then(|context| context.with("emmer.claim.role", "chief"))
        .and_then(|context| context.with("emmer.outside", "0"))
        .unwrap();
    let link = ChainLink { grain: desk.grain_id().clone(), exclusive: false, free: true, turn: 5 };
    let chain = CallChain::new(&[link]).unwrap().with_context(forged);
    let dial = || Forger::dial(&silo);
    let answer = dial().await.call(desk.grain_id().clone(), "Desk.who", chain.clone()).await;
    assert!(contains(&answer, "nobody"), "{}", String::from_utf8_lossy(&answer));
    let answer = dial().await.call(vault.grain_id().clone(), "Vault.who", chain).await;
    assert!(contains(&answer, "cannot be called from outside the cluster"));

    // Applications cannot either, by mistake.
    let key = ContextKey::<String>::new("emmer.identity");
    let ann = client(&store, "ann:clerk").await;
    let told = ann.grain::<dyn Desk>("a").who().with(&key, "root").await.unwrap_err().to_string();
    assert!(told.contains("begins with \"emmer.\""), "{told}");
}

/// An identity that ends: the client shows a fresh token, and no call is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_that_ends_is_shown_anew() {
    const LASTS: Duration = Duration::from_millis(150);
    let store = store();
    let silo = desks(&store).authenticate(|shown| async move {
        let number = shown.token().unwrap_or_default().to_owned();
        Ok(Some(Identity::new(number).until(SystemTime::now() + LASTS)))
    });
    let silo = silo.start().await.unwrap();
    let shown = Arc::new(AtomicU64::new(0));
    let source = shown.clone();
    let client = Client::builder().store(store.clone()).token(move || {
        let number = source.fetch_add(1, Ordering::Relaxed);
        async move { Ok(format!("token {number}")) }
    });
    let client = client.connect().await.unwrap();
    let desk = client.grain::<dyn Desk>("a");
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 4 {
        seen.insert(desk.who().await.unwrap());
    }
    assert_eq!(seen.first().map(String::as_str), Some("token 0 -"));
    assert!(shown.load(Ordering::Relaxed) >= 4);
    silo.stop().await.unwrap();

    // One that has ended before is not let in.
    let silo = desks(&store).authenticate(|_| async {
        Ok(Some(Identity::new("late").until(SystemTime::now() - Duration::from_secs(1))))
    });
    let silo = silo.start().await.unwrap();
    let late = shows(&store, "late").connect().await.err().unwrap().to_string();
    assert!(late.ends_with("the identity of this client has ended"), "{late}");
    drop(silo);
}

/// A reminder's method is called by reminders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cannot_say_that_a_reminder_is_due() {
    #[grain_interface(key = String)]
    trait Alarm {
        async fn ring(&mut self);
    }
    #[derive(Grain, Default)]
    struct AlarmGrain {}
    #[grain]
    impl Alarm for AlarmGrain {
        async fn ring(&mut self) {}
    }
    #[grain]
    impl AlarmGrain {
        #[reminder("due")]
        async fn due(&mut self, _: Tick) {}
    }
    let store = store();
    let silo = desks(&store).host::<dyn Alarm, AlarmGrain>().start().await.unwrap();
    let alarm = silo.grain::<dyn Alarm>("a");
    alarm.ring().await.unwrap();
    let answer =
        Forger::dial(&silo).await.call(alarm.grain_id().clone(), "Reminder.tick", CallChain::EMPTY);
    let answer = answer.await;
    let told = String::from_utf8_lossy(&answer).into_owned();
    assert!(told.contains("Reminder.tick cannot be called from outside the cluster"), "{told}");
}

/// Half a minute after its end a call of that identity is not waited for any longer.
#[cfg(feature = "test")]
#[emmer::test]
async fn a_call_outlives_the_identity_of_its_client_by_half_a_minute(world: emmer::test::World) {
    #[grain_interface(key = u64)]
    trait Sleeper {
        async fn sleep(&self, seconds: u64);
    }
    #[derive(Grain, Default)]
    struct SleeperGrain {}
    #[grain]
    impl Sleeper for SleeperGrain {
        async fn sleep(&self, seconds: u64) {
            tokio::time::sleep(secs(seconds)).await;
        }
    }
    // Virtual time begins here.
    let begun = SystemTime::UNIX_EPOCH + secs(1_767_225_600);
    let silo = move |silo: SiloBuilder| {
        let silo = silo.authenticate(move |shown| async move {
            let lasts = if shown.token() == Some("short") { secs(60) } else { secs(9_999) };
            Ok(Some(Identity::new("ann").until(begun + lasts)))
        });
        silo.host::<dyn Sleeper, SleeperGrain>()
    };
    let cluster = world.cluster(1, silo).await;
    let begins = tokio::time::Instant::now();
    let client = async |token: &'static str| {
        let shows = move || async move { Ok(token.to_owned()) };
        cluster.client_of(|client| client.token(shows)).await
    };
    let (short, long) = (client("short").await, client("long").await);
    let sleep = async |client: &Client, seconds| {
        let called = client.grain::<dyn Sleeper>(1).sleep(seconds).timeout(secs(500)).await;
        (called, begins.elapsed())
    };
    let (in_time, too_long, other) =
        tokio::join!(sleep(&short, 80), sleep(&short, 300), sleep(&long, 300));
    assert_eq!(in_time.0, Ok(()), "it was answered while the gateway waited");
    assert!(matches!(too_long.0, Err(CallError::Unreachable { .. })), "{too_long:?}");
    assert!((secs(80)..secs(95)).contains(&too_long.1), "{too_long:?}");
    assert_eq!(other.0, Ok(()));
}
