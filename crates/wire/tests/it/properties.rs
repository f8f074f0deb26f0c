//! Every input is a value or an error, and every value survives the journey.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // In helpers of tests, too.

use crate::common;
use crate::common::{Message, Note, grain, samples};
use bytes::{Bytes, BytesMut};
use emmer_core::grain::GrainKey;
use emmer_core::{ClusterId, GrainId, SiloAddress};
use emmer_wire::*;
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

const MAX: u32 = 1 << 20;

fn any_silo() -> impl Strategy<Value = SiloAddress> {
    (any::<std::net::IpAddr>(), any::<u16>(), any::<u64>())
        .prop_map(|(ip, port, epoch)| SiloAddress::new((ip, port).into(), epoch))
}

fn any_grain() -> impl Strategy<Value = GrainId> {
    let key = prop_oneof![
        any::<u64>().prop_map(GrainKey::Uint),
        any::<i64>().prop_map(GrainKey::Int),
        any::<u128>().prop_map(|n| GrainKey::Uuid(Uuid::from_u128(n))),
        ".{0,100}".prop_map(|text| GrainKey::from(text.as_str())),
    ];
    (any::<u32>(), key).prop_map(|(grain_type, key)| grain(grain_type, key))
}

fn any_request() -> impl Strategy<Value = RequestHeader> {
    let link = (any_grain(), 0..3u8, any::<u64>()).prop_map(|(grain, kind, turn)| ChainLink {
        grain,
        exclusive: kind == 1,
        free: kind == 2,
        turn,
    });
    (
        any::<u64>(),
        any_grain(),
        any::<[u32; 2]>(),
        (any::<u8>(), any_trace(), any_context()),
        0u8..8,
        any::<u64>(),
        vec(link, 0..6),
    )
        .prop_map(
            |(
                correlation,
                target,
                [method, deadline_ms],
                (forwards, trace, context),
                bits,
                expect_view,
                links,
            )| {
                let flags = RequestFlags::from_bits(bits).unwrap();
                let one_way = flags.contains(RequestFlags::ONE_WAY);
                let chain = CallChain::new(&links).unwrap().with_context(context);
                let correlation = if one_way { correlation } else { correlation.max(1) };
                RequestHeader {
                    correlation,
                    target,
                    method,
                    flags,
                    deadline_ms,
                    forwards,
                    expect_view,
                    chain,
                    trace,
                }
            },
        )
}

fn any_context() -> impl Strategy<Value = RequestContext> {
    vec(("[a-zé]{1,6}", ".{0,12}"), 0..4).prop_map(|entries| {
        let empty = RequestContext::EMPTY;
        entries.iter().fold(empty, |context, (key, value)| context.with(key, value).unwrap())
    })
}

fn any_trace() -> impl Strategy<Value = Option<TraceContext>> {
    any::<([u8; 16], [u8; 8], u8)>().prop_map(|(trace, span, flags)| match flags {
        0..128 => None,
        _ => TraceContext::new(trace, span, flags),
    })
}

fn any_limits() -> impl Strategy<Value = ConnectionLimits> {
    any::<(u32, u32, u64)>().prop_map(|(calls_in_flight_max, frame_bytes_max, credit_bytes)| {
        ConnectionLimits { calls_in_flight_max, frame_bytes_max, credit_bytes }
    })
}

fn any_seal() -> impl Strategy<Value = Option<Seal>> {
    let seal = any::<([u8; 32], [u8; 32], [u8; 32])>().prop_map(|(key, left, right)| {
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(&left);
        signature[32..].copy_from_slice(&right);
        Seal { key, signature }
    });
    proptest::option::of(seal)
}

fn any_handshake() -> impl Strategy<Value = Message> {
    let peer = prop_oneof![
        any_silo().prop_map(PeerKind::Silo),
        any_silo().prop_map(PeerKind::Probe),
        any_silo().prop_map(PeerKind::Watch),
        any::<u64>().prop_map(PeerKind::Client),
    ];
    let hello = (
        "[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,63}",
        peer,
        proptest::option::of(any_silo()),
        any_limits(),
        any::<u64>(),
        proptest::option::of(".{1,200}"),
        any_seal(),
    )
        .prop_map(|(cluster, peer, expects, limits, options, token, seal)| {
            let hello = Hello::new(ClusterId::new(&cluster).unwrap(), peer, expects, limits);
            let token = token.and_then(Token::new);
            Message::Hello(Hello { options, token, seal, ..hello })
        });
    let welcome = (any_silo(), any_limits(), any::<u64>(), any_seal()).prop_map(
        |(silo, limits, options, seal)| {
            Message::Welcome(Welcome { version: PROTOCOL_VERSION, silo, limits, options, seal })
        },
    );
    let refuse = (any::<u8>(), proptest::option::of(any_silo()), ".{0,200}").prop_map(
        |(code, silo, reason)| Message::Refuse(Refuse { code: code.into(), silo, reason }),
    );
    prop_oneof![hello, welcome, refuse]
}

fn any_message() -> impl Strategy<Value = Message> {
    let body = || vec(any::<u8>(), 0..200).prop_map(Bytes::from);
    let header = |status| {
        (1u64.., proptest::option::of(any_silo())).prop_map(move |(correlation, location)| {
            ResponseHeader { correlation, status, location }
        })
    };
    let failure = (1u8..=13, any::<bool>(), ".{0,200}").prop_flat_map(
        move |(code, maybe_executed, detail)| {
            header(ResponseStatus::Failed(FailureCode::try_from(code).unwrap())).prop_map(
                move |header| {
                    Message::Failure(header, Failure { maybe_executed, detail: detail.clone() })
                },
            )
        },
    );
    prop_oneof![
        any_handshake(),
        (any_request(), body()).prop_map(|(header, body)| Message::Request(header, body)),
        (header(ResponseStatus::Ok), body())
            .prop_map(|(header, body)| Message::Response(header, body)),
        failure,
        (1u8.., any::<u64>(), ".{0,50}").prop_map(|(channel, sequence, text)| Message::System(
            channel,
            Note { sequence, text }
        )),
        any::<u64>().prop_map(Message::Credit),
        vec(1u64.., 1..=CANCELS_MAX).prop_map(Message::Cancel),
        (any::<u8>(), ".{0,200}")
            .prop_map(|(code, text)| Message::Goodbye(Goodbye { code: code.into(), text })),
    ]
}

/// Decodes frames until the bytes end or make no sense. Every understood frame must be written and
/// read the same again.
fn digest(bytes: &[u8]) {
    let mut input = BytesMut::from(bytes);
    while let Ok(Some(frame)) = decode_frame(&mut input, MAX) {
        if let Ok(message) = Message::decode(frame) {
            assert_eq!(common::decode_whole(&message.bytes()), Ok(message));
        }
    }
    assert!(input.capacity() <= 2 * bytes.len() + (64 << 10), "memory beyond what arrived");
}

#[test]
fn every_truncation_and_every_changed_byte_of_every_vector_is_digested() {
    for (_, message) in samples() {
        let whole = message.bytes();
        for end in 0..whole.len() {
            digest(&whole[..end]);
            // With an honest length the truncation reaches the header's decoder.
            if end > FRAME_PREFIX_BYTES {
                let mut honest = whole[..end].to_vec();
                honest[..4].copy_from_slice(&((end - FRAME_PREFIX_BYTES) as u32).to_le_bytes());
                digest(&honest);
            }
            for value in 0..=255 {
                let mut changed = whole.clone();
                changed[end] = value;
                digest(&changed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_message_survives_the_journey(messages in vec(any_message(), 1..5)) {
        let mut bytes = BytesMut::new();
        for message in &messages {
            let before = bytes.len();
            prop_assert_eq!(message.encode(&mut bytes), bytes.len() - before);
        }
        for message in messages {
            let frame = decode_frame(&mut bytes, MAX).unwrap().unwrap();
            prop_assert_eq!(Message::decode(frame), Ok(message));
        }
        prop_assert!(bytes.is_empty());
    }

    #[test]
    fn mutated_messages_are_digested(
        message in any_message(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = message.bytes();
        for (at, value) in changes {
            // The length stays honest, so that the change reaches the header's decoder.
            let at = FRAME_PREFIX_BYTES + at.index(bytes.len() - FRAME_PREFIX_BYTES);
            bytes[at] = value;
        }
        digest(&bytes);
        digest(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn garbage_is_digested(kind in 1u8..=9, garbage in vec(any::<u8>(), 0..300)) {
        digest(&garbage);
        let mut framed = (garbage.len() as u32 + 1).to_le_bytes().to_vec();
        framed.push(kind);
        framed.extend(garbage);
        digest(&framed);
    }
}
