package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type versionJSON struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func (a *app) version() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := versionJSON{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
				v.Version = info.Main.Version
			}
			if asJSON {
				return writeJSON(a.out, v)
			}
			_, err := fmt.Fprintf(a.out, "pgmutex %s %s %s/%s\n", v.Version, v.Go, v.OS, v.Arch)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as a JSON object")
	return c
}
