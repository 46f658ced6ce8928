package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/pool"
	"tensorturn/projections/observers"
)

// Files of an observer's folder.
const (
	observerCreds  = "observer.creds"
	observerCA     = "ca.pem"
	observerReadme = "README.md"
)

func credentialCreate(a *app) *cobra.Command {
	var role, out, from string
	var expires time.Duration
	in := gateway.CreateObserver{}
	c := &cobra.Command{Use: "create --role observer", Short: "let another system read events over NATS", Args: args(),
		Long: "Makes a credential that reads events and does nothing else, and writes a folder for any stock NATS client:\n" +
			"observer.creds (a secret), ca.pem and a README with ten lines of Python and a command of the nats tool.\n" +
			"The hub keeps the reader's place: it may stop for days and goes on where it was.",
		RunE: func(c *cobra.Command, _ []string) error {
			if role != "observer" {
				return domain.Invalid("create credential", fmt.Sprintf("there is no role %q", domain.Clip(role, 40)), "give --role observer")
			}
			if err := parseFrom(from, &in); err != nil {
				return err
			}
			if err := checkLife("create credential", expires, pool.MaxObserverLife); err != nil {
				return err
			}
			in.Seconds = int64(expires / time.Second)
			return a.createObserver(c, in, out)
		}}
	f := c.Flags()
	f.StringVar(&role, "role", "", "what it may do: observer")
	f.StringVar(&in.Name, "name", "", "who reads, for people")
	f.StringVar(&in.Run, "run", "", "only the events of this run")
	f.StringVar(&from, "from", "", "where to begin: a sequence of the log, a time (2026-11-30T12:00:00Z), or now; everything when empty")
	f.DurationVar(&expires, "expires", 90*24*time.Hour, "how long it works, at most 8784h")
	f.StringVar(&out, "out", "", "folder to write (default: the observer's id)")
	return c
}

// parseFrom reads a sequence, a time, or now.
func parseFrom(s string, in *gateway.CreateObserver) error {
	if s == "" {
		return nil
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		in.From = n
		return nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if s == "now" {
		at, err = time.Now(), nil
	}
	if err != nil {
		return domain.Invalid("read --from", fmt.Sprintf("%q is neither a sequence nor a time", domain.Clip(s, 40)), "give 1200, 2026-11-30T12:00:00Z, or now")
	}
	in.Since = &at
	return nil
}

// createObserver draws the key here: its seed never travels.
func (a *app) createObserver(c *cobra.Command, in gateway.CreateObserver, out string) error {
	cl, err := a.client()
	if err != nil {
		return err
	}
	seed, nkey, err := identity.NewUserSeed()
	if err != nil {
		return err
	}
	in.NKey = nkey
	var o gateway.CreatedObserver
	if err := cl.call(c.Context(), http.MethodPost, "/api/v1/observers", in, &o); err != nil {
		return err
	}
	if out == "" {
		out = string(o.ID)
	}
	if err := writeObserver(out, o, seed); err != nil {
		return err
	}
	if a.json {
		return a.object(map[string]any{"id": o.ID, "dir": out, "url": o.URL, "stream": o.Stream, "consumer": o.Consumer, "api_prefix": o.APIPrefix,
			"subject": o.Subject, "expires": o.Expires, "credential": observerCreds, "ca": observerCA})
	}
	a.print("%s", o.ID)
	a.say("wrote %s, %s and %s into %s; valid until %s", observerCreds, observerCA, observerReadme, out, o.Expires.Format(time.RFC3339))
	return nil
}

func writeObserver(dir string, o gateway.CreatedObserver, seed []byte) error {
	creds, err := identity.FormatCreds(o.Credential, seed)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return domain.Invalid("write credential", plainPathError(err), "choose another folder with --out")
	}
	readme := strings.NewReplacer("{id}", string(o.ID), "{url}", o.URL, "{api}", o.APIPrefix, "{stream}", o.Stream, "{consumer}", o.Consumer, "{subject}", o.Subject).Replace(observerText)
	for _, f := range []struct {
		name string
		data []byte
	}{{observerCreds, creds}, {observerCA, []byte(o.CA)}, {observerReadme, []byte(readme)}} {
		if err := renameio.WriteFile(filepath.Join(dir, f.name), f.data, 0o600); err != nil {
			return domain.Unavailable("write credential", plainPathError(err), "choose another folder with --out; revoke this one: tensorturn credential revoke "+string(o.ID), nil)
		}
	}
	return nil
}

// observerText is the README of an observer's folder.
const observerText = `# Observer {id}

Events as CloudEvents 1.0 JSON, in order, at least once (drop an id that you have seen). The hub keeps your place.
Python, with the package nats-py[aiohttp,nkeys]:

` + "```python" + `
import asyncio, json, nats, ssl
async def main():
    nc = await nats.connect("{url}", user_credentials="observer.creds", tls=ssl.create_default_context(cafile="ca.pem"), max_reconnect_attempts=-1)
    sub = await nc.jetstream(prefix="{api}").pull_subscribe_bind("{consumer}", stream="{stream}")
    while True:
        try:
            for m in await sub.fetch(100, timeout=20):
                print(json.loads(m.data)["summary"], flush=True)
                await m.ack()
        except nats.errors.TimeoutError:
            pass
asyncio.run(main())
` + "```" + `

The nats tool follows (it ends a quiet time with an error, therefore the loop):

` + "```sh" + `
while sleep 0.2; do nats --server {url} --creds observer.creds --tlsca ca.pem --js-api-prefix {api} --timeout 25s consumer next {stream} {consumer} --count 1000; done
` + "```" + `
`

func credentialList(a *app) *cobra.Command {
	return listing(a, "list observers", "/api/v1/observers", []string{"OBSERVER", "NAME", "STATE", "READS", "EXPIRES"}, func(o observers.Observer) [][]string {
		what := string(o.Run)
		if what == "" {
			what = "all events"
		}
		return [][]string{{string(o.ID), o.Name, observerState(o), what, o.Expires.Format(time.RFC3339)}}
	})
}

func observerState(o observers.Observer) string {
	switch {
	case o.Revoked:
		return "revoked"
	case !o.Live(time.Now()):
		return "expired"
	}
	return "valid"
}

func credentialRevoke(a *app) *cobra.Command {
	return &cobra.Command{Use: "revoke OBSERVER", Short: "end an observer's access at once and for ever", Args: args("OBSERVER"),
		RunE: func(c *cobra.Command, got []string) error {
			id, err := domain.ParseID[domain.ObserverID]("observer", got[0])
			if err != nil {
				return err
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			return cl.call(c.Context(), http.MethodDelete, "/api/v1/observers/"+string(id), nil, nil)
		}}
}
