package main

import (
	"cmp"
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/adrg/xdg"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tensorturn/broker/health"
	"tensorturn/domain"
)

func hubCommand(a *app) *cobra.Command {
	return group("hub", "run the hub: the process that holds the log and decides", hubStart(a), hubStatus(a))
}

// hubDir is the default place of a hub's keys and log.
func hubDir() string { return filepath.Join(xdg.DataHome, "tensorturn", "hub") }

// defaultMaxStore is what the log and all blobs may take on disk, in bytes.
const defaultMaxStore = 64 << 30

func hubStart(a *app) *cobra.Command {
	o := hubOptions{maxStore: defaultMaxStore, minFree: health.DefaultMinFree}
	var logLevel string
	c := &cobra.Command{Use: "start", Short: "start the hub and run until SIGTERM", Args: args(),
		Long: "The first start makes the CA, the certificate, all keys and an operator key, and prints the line that joins a machine.\n" +
			"Everything goes through one HTTPS port. SIGTERM ends it in good order; agents go on and come back by themselves.\n" +
			"A start on the same folder keeps what the last one was told: all flags but --log-level need to be given once.",
		RunE: func(c *cobra.Command, _ []string) error {
			o.logger = newLogger(a.terminal, logLevel)
			return a.serveHub(c.Context(), &o, c.Flags())
		}}
	f := c.Flags()
	f.StringVar(&o.dir, "dir", hubDir(), "folder of keys and log; back it up")
	f.StringVar(&o.listen, "listen", "", "address of the one public port (default: the port of --public-url on all addresses, else :7443)")
	f.StringVar(&o.publicURL, "public-url", "", "https URL under which machines reach this hub (default: this host's name and port)")
	f.StringVar(&o.certFile, "tls-cert", "", "the owner's certificate chain instead of the hub's own")
	f.StringVar(&o.keyFile, "tls-key", "", "its key")
	f.DurationVar(&o.lease, "lease", domain.DefaultLease, "lease time: a slot without progress for this long loses its work")
	f.Var((*byteSize)(&o.maxStore), "max-store", "what the log and all blobs may take on disk, for example 200GiB")
	f.Var((*byteSize)(&o.minFree), "min-free", "free room on its disk below which the hub takes no new runs, and below a quarter of it no bytes")
	f.BoolVar(&o.privateWebhooks, "private-webhooks", false, "let webhooks reach private networks and plain http")
	f.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	return c
}

// serveHub starts the hub as it is told to and, where it is told nothing, as the last time; tells how to reach it; and stops
// it when the context ends. The flags are those that fill o.
func (a *app) serveHub(ctx context.Context, o *hubOptions, f *pflag.FlagSet) error {
	last, err := readStart(o.dir)
	if err != nil && (!f.Changed("listen") || !f.Changed("public-url")) {
		return err
	}
	if err != nil {
		a.say("warning: %v; its other flags are those given now, or their defaults", err)
	}
	said, err := recall(f, last)
	if err != nil {
		return err
	}
	if len(said) > 0 {
		a.say("as at the last start: %s", strings.Join(said, " "))
	}
	if err := o.absolute(); err != nil {
		return err
	}
	h, err := startHub(ctx, *o)
	if err != nil {
		return err
	}
	a.sayMoved(last.URL, h.url)
	if err := h.remember(f, last); err != nil { // as on a full disk, where the hub must run all the same
		a.say("warning: how the hub was started is not kept: %s; give the same flags at its next start", plainPathError(err))
	}
	if err := a.greet(ctx, h); err != nil {
		h.stop()
		return err
	}
	tell := h.tellManager(a)
	defer tell()
	select {
	case <-ctx.Done():
	case err = <-h.failed:
	}
	tell()
	a.say("stopping: taking no more requests, finishing what was decided")
	began := time.Now()
	if serr := h.stop(); err == nil {
		err = serr
	}
	if err == nil {
		a.say("stopped after %s", short(time.Since(began)))
	}
	return err
}

// greet prints where the hub is and, on the very first start, the line that joins a machine.
func (a *app) greet(ctx context.Context, h *hubProcess) error {
	a.say("hub %s is up, log at %s", h.url, filepath.Join(h.opts.dir, "store"))
	if u, err := url.Parse(h.url); err == nil && !strings.HasSuffix(h.here, ":"+cmp.Or(u.Port(), "443")) {
		a.say("it listens at %s: port %s of %s must lead there", h.here, cmp.Or(u.Port(), "443"), u.Hostname())
	}
	if h.readOnly != nil {
		a.say("%v", h.readOnly)
		a.say("reads go on while it runs, and so does the check that names the first bad record: tensorturn log verify --context %s", h.contextFile())
		a.say("then stop it and put its log together again: tensorturn log repair --dir %s --from COPY", h.opts.dir)
		return nil
	}
	if !h.created {
		return nil
	}
	token, err := h.firstToken(ctx)
	if err != nil {
		return err
	}
	a.say("operator key in %s (0600); on this machine set TENSORTURN_CONTEXT=%s", h.contextFile(), h.contextFile())
	a.say("to join one machine within 24 h, run there:")
	a.print("%s", token.Join)
	return nil
}
