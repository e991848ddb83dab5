package prometheus_test

import (
	"context"
	"fmt"
	"log"
	"regexp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgmutex/pgmutex"
	pgmutexprom "github.com/pgmutex/pgmutex/adapters/prometheus"
	"github.com/pgmutex/pgmutex/memory"
)

func Example() {
	ctx := context.Background()
	registry := prometheus.NewRegistry()

	collector, err := pgmutexprom.New(&pgmutexprom.Options{
		LockNames: regexp.MustCompile(`^(nightly-report|billing-.*)$`), // these become labels
	})
	if err != nil {
		log.Fatal(err)
	}
	registry.MustRegister(collector)

	locks, err := memory.New().Open(ctx, &pgmutex.Options{
		Hooks: []pgmutex.Hooks{collector.Hooks()},
	})
	if err != nil {
		log.Fatal(err)
	}
	err = locks.Do(ctx, "nightly-report", func(context.Context) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	locks.Close(ctx) // which also lets the hooks finish

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "pgmutex_locks_held" {
			fmt.Println(f.GetName(), f.Metric[0].GetLabel()[1].GetValue(), f.Metric[0].GetGauge().GetValue())
		}
	}
	// Output: pgmutex_locks_held nightly-report 0
}
