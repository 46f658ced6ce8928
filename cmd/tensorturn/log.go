package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
)

func logCommand(a *app) *cobra.Command {
	return group("log", "check the event log", logVerify(a))
}

// logVerify asks for every record and checks the chain on this side: the hub is not asked to judge itself.
func logVerify(a *app) *cobra.Command {
	return &cobra.Command{Use: "verify", Short: "verify the hash chain of the whole log; exit code 9 names the first bad sequence", Args: args(),
		Long: "Reads every record from the running hub, a read-only one too, and checks the chain on this machine.",
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			v, err := verifyRecords(c.Context(), cl, nil)
			if err != nil && domain.KindOf(err) != domain.KindIntegrity {
				return err
			}
			var hub gateway.Verified
			if herr := cl.call(c.Context(), http.MethodPost, "/api/v1/log/verify", struct{}{}, &hub); herr == nil {
				v.ReadOnly = hub.ReadOnly
			}
			if err == nil && v.ReadOnly != "" {
				// the records that are left hold together, and the hub knows that some are missing
				v.OK, v.Reason = false, v.ReadOnly
				err = domain.Integrity("verify log", v.ReadOnly, "stop the hub and restore its folder from a backup")
			}
			if a.json {
				if perr := a.object(v); perr != nil {
					return perr
				}
			} else if err == nil {
				a.print("ok: %d records, head %s", v.Records, v.Head)
			}
			if err != nil {
				a.json = false // the object above is the answer; the error goes to standard error only
			}
			return err
		}}
}
