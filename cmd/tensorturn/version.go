package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build says what this binary is.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source, when it was built from a checkout
	Modified bool   `json:"modified,omitempty"` // the checkout had changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "print the version of this binary", Args: args(),
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if a.json {
				return a.object(b)
			}
			a.print("tensorturn %s, %s, %s", b.Version, b.Go, b.Platform)
			return nil
		}}
}

func thisBuild() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	return b
}
