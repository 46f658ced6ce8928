package main

import (
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/broker/webhook"
	"tensorturn/domain"
)

func webhookCommand(a *app) *cobra.Command {
	return group("webhook", "send events to other systems over HTTPS", webhookCreate(a), webhookList(a), webhookRemove(a), webhookRedeliver(a))
}

func webhookCreate(a *app) *cobra.Command {
	in := gateway.CreateWebhook{}
	c := &cobra.Command{Use: "create URL", Short: "send events to a URL, signed; prints the secret once", Args: args("URL"),
		Long: "Sends every event as a CloudEvent by POST, in order, signed as Standard Webhooks say (standardwebhooks.com). A receiver that\n" +
			"does not answer is tried again until it does; an event that it refuses five times (4xx) is put aside: see webhook list.",
		RunE: func(c *cobra.Command, got []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			in.URL = got[0]
			var k webhook.Hook
			if err := cl.call(c.Context(), http.MethodPost, "/api/v1/webhooks", in, &k); err != nil {
				return err
			}
			if a.json {
				return a.object(k)
			}
			a.print("%s", k.Secret)
			a.say("webhook %s; the secret above is shown once: the receiver checks signatures with it", k.ID)
			return nil
		}}
	f := c.Flags()
	f.StringVar(&in.Name, "name", "", "who receives, for people")
	f.StringVar(&in.Run, "run", "", "only the events of this run")
	f.StringVar(&in.Kind, "kind", "", "only events of runs, machines or the pool: run, machine, pool")
	f.Uint64Var(&in.From, "from", 0, "first sequence of the log to send (default: what happens from now on)")
	return c
}

func webhookList(a *app) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "list webhooks, how far they are, and what was refused", Args: args(),
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			ks, err := pages[webhook.Hook](c.Context(), cl, "/api/v1/webhooks")
			if err != nil {
				return err
			}
			if a.json {
				return a.object(ks)
			}
			rows := [][]string{}
			for _, k := range ks {
				rows = append(rows, []string{k.ID, k.URL, webhookState(k), itoa(k.After), strconv.Itoa(len(k.Dead))})
			}
			a.table([]string{"WEBHOOK", "URL", "STATE", "DELIVERED UP TO", "DEAD"}, rows)
			for _, k := range ks {
				for _, d := range k.Dead {
					a.print("%s  dead: %d %s: %s", k.ID, d.Seq, d.Type, clean(d.Why))
				}
			}
			return nil
		}}
}

func webhookState(k webhook.Hook) string {
	switch {
	case k.Stopped != "":
		return "stopped: " + k.Stopped
	case k.Failing != "":
		return "waiting: " + k.Failing
	}
	return "ok"
}

func webhookRemove(a *app) *cobra.Command {
	return webhookVerb(a, "remove", "send no more and forget the webhook", http.MethodDelete, "")
}

func webhookRedeliver(a *app) *cobra.Command {
	return webhookVerb(a, "redeliver", "send the dead events once more; a stopped webhook goes on", http.MethodPost, "/redeliver")
}

func webhookVerb(a *app, verb, short, method, tail string) *cobra.Command {
	return &cobra.Command{Use: verb + " WEBHOOK", Short: short, Args: args("WEBHOOK"),
		RunE: func(c *cobra.Command, got []string) error {
			if !domain.ValidID(got[0]) {
				return domain.Invalid(verb+" webhook", "this is not an id", "list them with: tensorturn webhook list")
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			return cl.call(c.Context(), method, "/api/v1/webhooks/"+got[0]+tail, nil, nil)
		}}
}
