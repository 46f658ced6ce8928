package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/domain/pool"
	"tensorturn/projections/keys"
)

func keyCommand(a *app) *cobra.Command {
	return group("key", "make, list and revoke API keys", keyCreate(a), keyList(a), keyRevoke(a))
}

func keyCreate(a *app) *cobra.Command {
	var model, role, rate string
	var expires time.Duration
	in := gateway.CreateKey{}
	c := &cobra.Command{
		Use: "create", Short: "print an API key once: for one model, or for the API", Args: args(),
		Long: "Prints an API key once; the hub keeps only its SHA-256. With --model its bearer may ask that deployed model for\n" +
			"predictions and nothing else. With --role operator it may do what the owner may, with --role observer read runs,\n" +
			"machines and events, or with --run one run alone.",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if in, err = keyWish(in, model, role, rate); err != nil {
				return err
			}
			if err := checkLife("create key", expires, pool.MaxKeyLife); err != nil {
				return err
			}
			in.Seconds = int64(expires / time.Second)
			cl, err := a.client()
			if err != nil {
				return err
			}
			var k gateway.CreatedKey
			if err := cl.call(c.Context(), http.MethodPost, "/api/v1/keys", in, &k); err != nil {
				return err
			}
			if a.json {
				return a.object(k)
			}
			a.print("%s", k.Secret)
			a.say("%s may %s until %s", k.ID, keyMay(k.Key), k.Expires.Format(time.RFC3339))
			if k.Role == pool.RoleModel {
				a.say("try: curl --cacert %s -H 'Authorization: Bearer %s...' %s/v2/models/%s", "ca.pem", k.Secret[:4], k.URL, k.Model)
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&model, "model", "", "the deployed model it may ask")
	f.StringVar(&role, "role", "", "or what it may do with the API: operator or observer")
	f.StringVar(&in.Run, "run", "", "with --role observer: the only run it sees")
	f.StringVar(&rate, "rate", "", "with --model: most requests, as 10/s or 600/m (default 1000/s)")
	f.StringVar(&in.Name, "name", "", "who gets it, for people")
	f.DurationVar(&expires, "expires", 90*24*time.Hour, "how long it works, at most 8784h")
	return c
}

// keyWish checks the flags in their own words.
func keyWish(in gateway.CreateKey, model, role, rate string) (gateway.CreateKey, error) {
	const op = "create key"
	in.Model, in.Role = domain.ModelID(model), pool.Role(role)
	switch {
	case model != "" && role != "":
		return in, domain.Invalid(op, "--model and --role are both given", "a key is for one model, or for the API")
	case model == "" && role == "":
		return in, domain.Invalid(op, "what it is for is missing", "give --model NAME, --role operator or --role observer")
	case model != "":
		in.Role = pool.RoleModel
	case in.Role != pool.RoleOperator && in.Role != pool.RoleObserver:
		return in, domain.Invalid(op, fmt.Sprintf("there is no role %q", domain.Clip(role, 40)), "give --role operator or --role observer")
	}
	if in.Run != "" && in.Role != pool.RoleObserver {
		return in, domain.Invalid(op, "--run goes with --role observer alone", "leave it out")
	}
	if rate == "" {
		return in, nil
	}
	if in.Role != pool.RoleModel {
		return in, domain.Invalid(op, "--rate goes with --model alone", "leave it out")
	}
	number, unit, _ := strings.Cut(rate, "/")
	n, err := strconv.Atoi(number)
	per, ok := map[string]int{"s": 1, "m": 60}[unit]
	if err != nil || !ok || n < 1 || n > pool.MaxRate {
		return in, domain.Invalid(op, fmt.Sprintf("--rate is %q", domain.Clip(rate, 40)), fmt.Sprintf("give 1 to %d a second or a minute: 10/s, 600/m", pool.MaxRate))
	}
	in.Rate, in.RateSeconds = n, per
	return in, nil
}

// keyMay says in words what a key opens.
func keyMay(k keys.Key) string {
	switch {
	case k.Role == pool.RoleModel:
		return fmt.Sprintf("ask %s, %s", k.Model, pool.RateText(k.Rate, k.Per))
	case k.Role == pool.RoleOperator:
		return "do what the owner may"
	case k.Run != "":
		return "read run " + string(k.Run)
	}
	return "read every run"
}

func keyList(a *app) *cobra.Command {
	return listing(a, "list API keys by their public ids", "/api/v1/keys", []string{"KEY", "ENDS IN", "NAME", "STATE", "MAY", "EXPIRES"}, func(k keys.Key) [][]string {
		return [][]string{{string(k.ID), "..." + k.Tail, k.Name, keyState(k), keyMay(k), k.Expires.Format(time.RFC3339)}}
	})
}

func keyState(k keys.Key) string {
	switch {
	case k.Revoked:
		return "revoked"
	case !k.Live(time.Now()):
		return "expired"
	}
	return "valid"
}

func keyRevoke(a *app) *cobra.Command {
	return &cobra.Command{Use: "revoke KEY-ID", Short: "end a key at once and for ever", Args: args("KEY-ID"),
		RunE: func(c *cobra.Command, got []string) error {
			id, err := domain.ParseID[domain.KeyID]("key", got[0])
			if err != nil {
				return err
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			return cl.call(c.Context(), http.MethodDelete, "/api/v1/keys/"+string(id), nil, nil)
		}}
}
