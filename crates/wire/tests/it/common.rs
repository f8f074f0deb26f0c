//! Values the tests share: one of every kind of frame, each with the name of its vector in
//! `docs/wire.md`.

#![allow(dead_code)]

use bytes::{Bytes, BytesMut};
use emmer_core::grain::{GrainKey, GrainTypeId};
use emmer_core::{ClusterId, GrainId, SiloAddress};
use emmer_wire::*;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A system message of the tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) sequence: u64,
    pub(crate) text: String,
}

/// Any frame with its payload decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Hello(Hello),
    Welcome(Welcome),
    Refuse(Refuse),
    Request(RequestHeader, Bytes),
    Response(ResponseHeader, Bytes),
    Failure(ResponseHeader, Failure),
    System(u8, Note),
    Credit(u64),
    Cancel(Vec<u64>),
    Goodbye(Goodbye),
}

impl Message {
    /// Appends the frame; answers how long it says it is.
    pub(crate) fn encode(&self, out: &mut BytesMut) -> usize {
        let copy = |body: &Bytes| {
            let body = body.clone();
            move |out: &mut BytesMut| {
                out.extend_from_slice(&body);
                Ok::<(), String>(())
            }
        };
        match self {
            Self::Hello(hello) => encode_hello(out, hello),
            Self::Welcome(welcome) => encode_welcome(out, welcome),
            Self::Refuse(refuse) => encode_refuse(out, refuse),
            Self::Request(header, body) => encode_request(out, header, copy(body)).unwrap(),
            Self::Response(header, body) => encode_response(out, header, copy(body)).unwrap(),
            Self::Failure(header, failure) => encode_response(out, header, |out| {
                put_failure(out, failure.maybe_executed, &failure.detail);
                Ok::<(), String>(())
            })
            .unwrap(),
            Self::System(channel, note) => encode_system(out, *channel, note).unwrap(),
            Self::Credit(total) => encode_credit(out, *total),
            Self::Cancel(calls) => {
                calls.iter().fold(0, |bytes, call| extend_cancel(out, bytes, *call))
            }
            Self::Goodbye(goodbye) => encode_goodbye(out, goodbye.code, &goodbye.text),
        }
    }

    /// Decodes everything in a frame, as a connection and its users do together.
    pub(crate) fn decode(frame: Frame) -> Result<Self, String> {
        let text = |error: HeaderError| error.to_string();
        let payload = frame.payload;
        Ok(match frame.kind {
            FrameKind::Hello => Self::Hello(Hello::decode(&payload).map_err(text)?),
            FrameKind::Welcome => Self::Welcome(Welcome::decode(&payload).map_err(text)?),
            FrameKind::Refuse => Self::Refuse(Refuse::decode(&payload).map_err(text)?),
            FrameKind::Request => {
                let (header, body) = decode_request(payload).map_err(text)?;
                Self::Request(header, body)
            }
            FrameKind::Response => {
                let (header, body) = decode_response(payload).map_err(text)?;
                match header.status {
                    ResponseStatus::Ok => Self::Response(header, body),
                    ResponseStatus::Failed(_) => {
                        Self::Failure(header, decode_failure(&body).map_err(text)?)
                    }
                }
            }
            FrameKind::System => {
                let (channel, value) = decode_system_channel(&payload).map_err(text)?;
                Self::System(channel, codec::decode(&value).map_err(|error| error.to_string())?)
            }
            FrameKind::Credit => Self::Credit(decode_credit(&payload).map_err(text)?),
            FrameKind::Cancel => Self::Cancel(decode_cancel(&payload).map_err(text)?),
            FrameKind::Goodbye => Self::Goodbye(Goodbye::decode(&payload).map_err(text)?),
        })
    }

    /// The frame's bytes.
    pub(crate) fn bytes(&self) -> BytesMut {
        let mut out = BytesMut::new();
        let appended = self.encode(&mut out);
        assert_eq!(appended, out.len());
        out
    }
}

/// Decodes `bytes`, which are one whole frame.
pub(crate) fn decode_whole(bytes: &[u8]) -> Result<Message, String> {
    let mut input = BytesMut::from(bytes);
    let frame = decode_frame(&mut input, 1 << 24).map_err(|error| error.to_string())?;
    let frame = frame.ok_or("not a whole frame")?;
    assert!(input.is_empty());
    Message::decode(frame)
}

/// The silo of this text.
pub(crate) fn silo(text: &str) -> SiloAddress {
    text.parse().unwrap()
}

/// The grain of this type and key.
pub(crate) fn grain(grain_type: u32, key: impl Into<GrainKey>) -> GrainId {
    GrainId::new(GrainTypeId::from_u32(grain_type), key)
}

const LIMITS: ConnectionLimits = ConnectionLimits {
    calls_in_flight_max: 65_536,
    frame_bytes_max: 16 << 20,
    credit_bytes: 8 << 20,
};

/// The body `{"n": 5}`.
const BODY: &[u8] = &[0x81, 0xa1, b'n', 5];

/// Every vector of the page with the value it stands for.
pub(crate) fn samples() -> Vec<(&'static str, Message)> {
    let mut all = handshakes();
    all.extend(requests());
    all.extend(answers());
    all
}

fn handshakes() -> Vec<(&'static str, Message)> {
    let (here, there) =
        (silo("10.0.0.1:11111:1795265085000000"), silo("10.0.0.2:11111:1795265085000001"));
    let hello = |peer| {
        let cluster = ClusterId::new("prod").unwrap();
        let options = if matches!(peer, PeerKind::Silo(_)) { 0x1817_1615_1413_1211 } else { 0 };
        Message::Hello(Hello { options, ..Hello::new(cluster, peer, Some(there), LIMITS) })
    };
    let client = Hello {
        version_min: 1,
        version_max: 9,
        cluster: ClusterId::new("a").unwrap(),
        peer: PeerKind::Client(0x0102_0304_0506_0708),
        expects: None,
        codec: 1,
        limits: ConnectionLimits { calls_in_flight_max: 1, frame_bytes_max: 2, credit_bytes: 3 },
        options: 0,
        token: None,
        seal: None,
    };
    let token = Token::new("t0ken");
    let token = Hello { version_max: 1, token, ..client.clone() };
    let welcome = Welcome {
        version: 1,
        silo: silo("[2001:db8::7]:30000:7"),
        limits: LIMITS,
        options: 0x1817_1615_1413_1211,
        seal: None,
    };
    let seal = Some(Seal { key: [0x5e; 32], signature: [0x51; 64] });
    let sealed = Hello { peer: PeerKind::Silo(here), token: None, seal, ..token.clone() };
    let refuse = Refuse {
        code: RefuseCode::WrongSilo,
        silo: Some(there),
        reason: "this is 10.0.0.2:11111:1795265085000001".to_owned(),
    };
    let bare = Refuse { code: RefuseCode::ClusterMismatch, silo: None, reason: String::new() };
    vec![
        ("hello-silo", hello(PeerKind::Silo(here))),
        ("hello-client", Message::Hello(client)),
        ("hello-token", Message::Hello(token)),
        ("hello-sealed", Message::Hello(sealed)),
        ("hello-probe", hello(PeerKind::Probe(here))),
        ("hello-watch", hello(PeerKind::Watch(here))),
        ("welcome", Message::Welcome(welcome)),
        ("welcome-sealed", Message::Welcome(Welcome { seal, ..welcome })),
        ("refuse", Message::Refuse(refuse)),
        ("refuse-bare", Message::Refuse(bare)),
    ]
}

fn requests() -> Vec<(&'static str, Message)> {
    let uuid = Uuid::parse_str("67e55044-10b1-426f-9247-bb680e5fe0c8").unwrap();
    let chain = [
        ChainLink { grain: grain(0x5566_7788, -3i64), exclusive: true, free: false, turn: 258 },
        ChainLink { grain: grain(0x99aa_bbcc, uuid), exclusive: false, free: true, turn: u64::MAX },
    ];
    let request = RequestHeader {
        correlation: 7,
        target: grain(0x1122_3344, "home"),
        method: 0xa1b2_c3d4,
        flags: RequestFlags::NONE,
        deadline_ms: 1500,
        forwards: 1,
        expect_view: 41,
        chain: CallChain::new(&chain).unwrap(),
        trace: None,
    };
    let one_way = RequestHeader {
        correlation: 0,
        target: grain(0x1122_3344, 300u64),
        method: 1,
        flags: RequestFlags::ONE_WAY,
        deadline_ms: 0,
        forwards: 0,
        expect_view: 0,
        chain: CallChain::EMPTY,
        trace: None,
    };
    let read_only = RequestHeader {
        correlation: u64::MAX,
        target: grain(u32::MAX, i64::MIN),
        method: u32::MAX,
        flags: RequestFlags::READ_ONLY | RequestFlags::INTERLEAVE,
        deadline_ms: u32::MAX,
        forwards: 255,
        expect_view: u64::MAX,
        chain: CallChain::EMPTY,
        trace: None,
    };
    let trace = TraceContext::new(
        0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes(),
        0x00f0_67aa_0ba9_02b7_u64.to_be_bytes(),
        1,
    );
    let traced = RequestHeader {
        chain: CallChain::new(&chain[..1]).unwrap(),
        trace: Some(trace.unwrap()),
        ..request.clone()
    };
    let context = RequestContext::EMPTY.with("tenant", "acme").unwrap().with("a", "").unwrap();
    let with_context =
        RequestHeader { chain: CallChain::EMPTY.with_context(context), ..one_way.clone() };
    vec![
        ("request-traced", Message::Request(traced, Bytes::from_static(BODY))),
        ("request", Message::Request(request, Bytes::from_static(BODY))),
        ("request-one-way", Message::Request(one_way, Bytes::new())),
        ("request-context", Message::Request(with_context, Bytes::new())),
        ("request-read-only", Message::Request(read_only, Bytes::from_static(BODY))),
    ]
}

fn answers() -> Vec<(&'static str, Message)> {
    let ok = |correlation, location| ResponseHeader {
        correlation,
        status: ResponseStatus::Ok,
        location,
    };
    let failed = ResponseHeader {
        correlation: 9,
        status: ResponseStatus::Failed(FailureCode::Deadlock),
        location: None,
    };
    let failure = Failure { maybe_executed: false, detail: "A -> B -> A".to_owned() };
    let there = silo("10.0.0.2:11111:1795265085000001");
    let note = Note { sequence: 3, text: "hi".to_owned() };
    let goodbye = Goodbye { code: GoodbyeCode::Stopping, text: "see you".to_owned() };
    vec![
        ("response", Message::Response(ok(7, None), Bytes::from_static(&[0x2a]))),
        ("response-location", Message::Response(ok(8, Some(there)), Bytes::from_static(&[0xc0]))),
        ("response-failure", Message::Failure(failed, failure)),
        ("system", Message::System(channel::MEMBERSHIP, note)),
        ("credit", Message::Credit(1 << 20)),
        ("cancel", Message::Cancel(vec![7, 9 << 32])),
        ("goodbye", Message::Goodbye(goodbye)),
    ]
}
