//! The bridge from the runtime's spans to OpenTelemetry, and which traces it records.

use emmer_runtime::trace::{TARGET, TraceContext, Tracer};
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, TraceContextExt, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, ShouldSample};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Knows the spans that a layer of `tracing-opentelemetry` records, also a layer that the
/// application made.
#[derive(Clone, Copy, Debug)]
pub struct OpenTelemetry;

impl Tracer for OpenTelemetry {
    fn context(&self, span: &Span) -> Option<TraceContext> {
        let context = span.context();
        let known = context.span();
        let known = known.span_context();
        TraceContext::new(
            known.trace_id().to_bytes(),
            known.span_id().to_bytes(),
            known.trace_flags().to_u8(),
        )
    }

    fn adopt(&self, span: &Span, parent: &TraceContext) {
        let parent = SpanContext::new(
            TraceId::from_bytes(parent.trace_id()),
            SpanId::from_bytes(parent.span_id()),
            TraceFlags::new(parent.flags()),
            true,
            TraceState::NONE,
        );
        // The span was made a moment ago, so it can still get its parent.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
}

/// Records a trace if the span is recorded that it comes from, and every trace that the runtime
/// begins: it has thrown the dice already. Of traces that the application begins, a share.
#[derive(Clone, Debug)]
pub(super) struct Share(Sampler);

impl Share {
    pub(super) fn of(share: f64) -> Sampler {
        Sampler::ParentBased(Box::new(Self(Sampler::TraceIdRatioBased(share))))
    }
}

impl ShouldSample for Share {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let own = |one: &KeyValue| {
            one.key.as_str() == "target"
                && matches!(&one.value, Value::String(s) if s.as_str() == TARGET)
        };
        let mut result = self.0.should_sample(parent, trace, name, kind, attributes, links);
        if attributes.iter().any(own) {
            result.decision = SamplingDecision::RecordAndSample;
        }
        result
    }
}
