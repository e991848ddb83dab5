package otel_test

import (
	"context"
	"fmt"
	"log"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pgmutex/pgmutex"
	pgmutexotel "github.com/pgmutex/pgmutex/adapters/otel"
	"github.com/pgmutex/pgmutex/memory"
)

func Example() {
	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter() // a program exports to its collector
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))

	tracing, err := pgmutexotel.New(&pgmutexotel.Options{TracerProvider: provider})
	if err != nil {
		log.Fatal(err)
	}
	locks, err := memory.New().Open(ctx, &pgmutex.Options{
		Hooks:    []pgmutex.Hooks{tracing.Hooks()},
		Annotate: tracing.Annotate, // so that those who wait can link to us
	})
	if err != nil {
		log.Fatal(err)
	}
	err = locks.Do(ctx, "nightly-report", func(context.Context) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	locks.Close(ctx) // which also lets the hooks finish

	for _, span := range exporter.GetSpans() {
		fmt.Println(span.Name)
	}
	// Output:
	// pgmutex.lock.acquire
	// pgmutex.lock.release
}
