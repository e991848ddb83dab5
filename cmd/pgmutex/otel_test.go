package main_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracedata "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pgmutex/pgmutex/internal/pgtest"
)

// A collector takes what real OTLP exporters send.
type collector struct {
	collectortrace.UnimplementedTraceServiceServer
	url string

	mu       sync.Mutex
	spans    []*tracedata.Span
	services map[string]bool
	metrics  map[string]bool
}

// newCollector starts one for OTLP over HTTP.
func newCollector(t *testing.T) *collector {
	c := &collector{services: map[string]bool{}, metrics: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		var got collectortrace.ExportTraceServiceRequest
		if decode(t, w, r, &got) {
			c.takeSpans(&got)
		}
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, r *http.Request) {
		var got collectormetrics.ExportMetricsServiceRequest
		if !decode(t, w, r, &got) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range got.ResourceMetrics {
			for _, scope := range resource.ScopeMetrics {
				for _, m := range scope.Metrics {
					c.metrics[m.Name] = true
				}
			}
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func decode(t *testing.T, w http.ResponseWriter, r *http.Request, m proto.Message) bool {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, m)
	}
	if err != nil {
		t.Errorf("%s: %v", r.URL.Path, err)
		w.WriteHeader(http.StatusBadRequest)
		return false
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	return true
}

// Export implements the service of OTLP over gRPC.
func (c *collector) Export(_ context.Context, r *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	c.takeSpans(r)
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

func (c *collector) takeSpans(r *collectortrace.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				c.services[a.Value.GetStringValue()] = true
			}
		}
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
}

// span returns the one span of a name in a trace.
func (c *collector) span(t *testing.T, trace, name string) *tracedata.Span {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var found *tracedata.Span
	for _, s := range c.spans {
		if s.Name == name && hex.EncodeToString(s.TraceId) == trace {
			if found != nil {
				t.Fatalf("several spans %s in trace %s", name, trace)
			}
			found = s
		}
	}
	if found == nil {
		t.Fatalf("no span %s in trace %s among %v", name, trace, c.spans)
	}
	return found
}

func (c *collector) silent(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spans)+len(c.metrics) > 0 {
		t.Errorf("the collector got %v, %v", c.spans, c.metrics)
	}
}

func env(vars ...string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, vars...) }
}

// From the span of a slow run one gets to the run that it waited for, and the
// metrics of both arrive.
func TestRunTraces(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t), newCollector(t)
	const first, second = "4bf92f3577b34da6a3ce929d0e0e4736", "5bf92f3577b34da6a3ce929d0e0e4737"
	stop := w.file("stop")
	holder := w.startWith(env("OTEL_EXPORTER_OTLP_ENDPOINT="+c.url, "TRACEPARENT=00-"+first+"-00f067aa0ba902b7-01"),
		"run", "--otel", "job", "--", "sh", "-c", `echo "$TRACEPARENT" > parent; while [ ! -e "$0" ]; do sleep 0.02; done`, stop)
	parent := w.await("parent")
	waiter := w.startWith(env("OTEL_EXPORTER_OTLP_ENDPOINT="+c.url, "OTEL_SERVICE_NAME=nightly", "TRACEPARENT=00-"+second+"-00f067aa0ba902b7-01"),
		"run", "--otel", "-w", "1m", "job", "--", "sh", "-c", "exit 7")
	pgtest.WaitFor(t, "the second run to wait", func() bool { return strings.Contains(waiter.stderr(), "waiting for") })
	w.run("show", "job").want(0)
	if err := exec.Command("touch", stop).Run(); err != nil {
		t.Fatal(err)
	}
	holder.want(0).silent()
	waiter.want(7)
	if strings.Contains(waiter.stderr(), "collector") {
		t.Errorf("stderr is %q", waiter.stderr())
	}

	work := c.span(t, first, "pgmutex run")
	if hex.EncodeToString(work.ParentSpanId) != "00f067aa0ba902b7" {
		t.Errorf("the run's parent is %x", work.ParentSpanId)
	}
	if want := "00-" + first + "-" + hex.EncodeToString(work.SpanId) + "-01"; parent != want {
		t.Errorf("the command's TRACEPARENT is %q, want %q", parent, want)
	}
	for _, name := range []string{"pgmutex.lock.acquire", "pgmutex.lock.release"} {
		if s := c.span(t, first, name); !bytes.Equal(s.ParentSpanId, work.SpanId) || len(s.Links) != 0 {
			t.Errorf("%s has the parent %x and %d links", name, s.ParentSpanId, len(s.Links))
		}
	}
	waited := c.span(t, second, "pgmutex.lock.acquire")
	if len(waited.Links) != 1 || !bytes.Equal(waited.Links[0].TraceId, work.TraceId) || !bytes.Equal(waited.Links[0].SpanId, work.SpanId) {
		t.Errorf("the waiter's links are %v, want the holder's span %x", waited.Links, work.SpanId)
	}
	attributes := map[string]string{}
	for _, s := range []*tracedata.Span{waited, c.span(t, second, "pgmutex run")} {
		for _, a := range s.Attributes {
			attributes[a.Key] = a.Value.String()
		}
	}
	for key, want := range map[string]string{
		"pgmutex.lock.key": `string_value:"job"`, "pgmutex.lock.timeout": "double_value:60",
		"pgmutex.lock.outcome": `string_value:"acquired"`, "process.exit.code": "int_value:7",
	} {
		if got := strings.ReplaceAll(attributes[key], "  ", " "); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range []string{"pgmutex.lock.acquisitions", "pgmutex.lock.acquire.duration", "pgmutex.lock.hold.duration", "pgmutex.lock.contentions"} {
		if !c.metrics[name] {
			t.Errorf("the metric %s is not among %v", name, c.metrics)
		}
	}
	if !c.services["pgmutex"] || !c.services["nightly"] {
		t.Errorf("services are %v", c.services)
	}
}

func TestRunTracesByGRPC(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t), newCollector(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	pgtest.Must(t, err)
	server := grpc.NewServer()
	collectortrace.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	w.startWith(env("OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_METRICS_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+l.Addr().String(),
		"TRACEPARENT=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), "run", "--otel", "job", "--", "true").want(0).silent()
	c.span(t, "4bf92f3577b34da6a3ce929d0e0e4736", "pgmutex.lock.acquire")
}

// Without --otel nothing is sent, whatever the environment says; nor with it where
// the environment says so.
func TestRunSendsNothingUnasked(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t), newCollector(t)
	here := "OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url
	w.startWith(env(here), "run", "job", "--", "sh", "-c", `test -z "$TRACEPARENT"`).want(0).silent()
	w.startWith(env(here, "OTEL_SDK_DISABLED=true"), "run", "--otel", "job", "--", "true").want(0).silent()
	w.startWith(env(here, "OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none"), "run", "--otel", "job", "--", "true").want(0).silent()
	c.silent(t)
}

// A collector that is gone, or never answers, neither changes the exit code nor
// keeps anybody.
func TestRunWithDeadCollector(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and is silent
	pgtest.Must(t, err)
	t.Cleanup(func() { l.Close() })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	pgtest.Must(t, err)
	gone.Close()
	for name, vars := range map[string][]string{
		"silent":      {"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + l.Addr().String()},
		"silent gRPC": {"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + l.Addr().String(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
		"gone":        {"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + gone.Addr().String()},
	} {
		p := w.startWith(env(vars...), "run", "--otel", "job", "--", "sh", "-c", "exit 7").want(7).says("the collector has not taken all")
		// 1.5 s, where the exporters' own limit is 10 s.
		if p.took > 6*time.Second {
			t.Errorf("%s: took %v", name, p.took)
		}
		t.Logf("%s: took %v", name, p.took)
	}
	w.startWith(env("OTEL_EXPORTER_OTLP_ENDPOINT=http://"+gone.Addr().String()), "run", "-q", "--otel", "job", "--", "true").want(0).silent()
	w.isFree("job")
}

func TestRunOtelUsage(t *testing.T) {
	t.Parallel()
	w := emptyWorld(t)
	for variable, text := range map[string]string{
		"OTEL_EXPORTER_OTLP_PROTOCOL=smoke-signals": "OTEL_EXPORTER_OTLP_PROTOCOL",
		"OTEL_TRACES_EXPORTER=jaeger":               "OTEL_TRACES_EXPORTER",
		"OTEL_METRICS_EXPORTER=statsd":              "OTEL_METRICS_EXPORTER",
		"OTEL_RESOURCE_ATTRIBUTES=novalue":          "OTEL_RESOURCE_ATTRIBUTES",
	} {
		w.startWith(env(variable), "run", "--otel", "job", "--", "true").want(64).says("--otel", text)
	}
}
