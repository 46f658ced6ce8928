package main

import (
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/projections/fleet"
)

func tokenCommand(a *app) *cobra.Command {
	return group("token", "make, list and revoke join tokens", tokenCreate(a), tokenList(a), tokenRevoke(a))
}

func tokenCreate(a *app) *cobra.Command {
	var uses int
	var expires time.Duration
	c := &cobra.Command{
		Use: "create", Short: "print a join token once", Args: args(),
		Long: "Prints a join token once; the hub keeps only its SHA-256. The token carries the hub's CA pin and a checksum.",
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			var t gateway.CreatedToken
			in := gateway.CreateToken{Uses: uses, Seconds: int64(expires / time.Second)}
			if err := cl.call(c.Context(), http.MethodPost, "/api/v1/tokens", in, &t); err != nil {
				return err
			}
			if a.json {
				return a.object(t)
			}
			a.print("%s", t.Token)
			a.say("on the machine that joins: %s", t.Join)
			a.say("valid for %d use(s) until %s", t.Uses, t.Expires.Format(time.RFC3339))
			return nil
		},
	}
	c.Flags().IntVar(&uses, "uses", 1, "machines it may join")
	c.Flags().DurationVar(&expires, "expires", 24*time.Hour, "how long it is valid, at most 720h")
	return c
}

func tokenList(a *app) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "list join tokens by their public ids", Args: args(),
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			var ts []fleet.Token
			if err := cl.call(c.Context(), http.MethodGet, "/api/v1/tokens", nil, &ts); err != nil {
				return err
			}
			if a.json {
				return a.object(ts)
			}
			rows := [][]string{}
			for _, t := range ts {
				rows = append(rows, []string{string(t.ID), tokenState(t), itoa(t.Uses), t.Expires.Format(time.RFC3339)})
			}
			a.table([]string{"TOKEN", "STATE", "USES LEFT", "EXPIRES"}, rows)
			return nil
		}}
}

func tokenState(t fleet.Token) string {
	switch {
	case t.Revoked:
		return "revoked"
	case t.Uses == 0:
		return "used"
	case time.Now().After(t.Expires):
		return "expired"
	}
	return "valid"
}

func tokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{Use: "revoke TOKEN-ID", Short: "make a token worthless; machines that joined stay", Args: args("TOKEN-ID"),
		RunE: func(c *cobra.Command, got []string) error {
			id, err := domain.ParseID[domain.TokenID]("token", got[0])
			if err != nil {
				return err
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			return cl.call(c.Context(), http.MethodDelete, "/api/v1/tokens/"+string(id), nil, nil)
		}}
}
