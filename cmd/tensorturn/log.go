package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
)

func logCommand(a *app) *cobra.Command {
	return group("log", "check the event log, put a damaged one together again, take runs out into archives", logVerify(a), logRepair(a), logExport(a), logImport(a))
}

// logVerify asks for every record and checks the chain on this side: the hub is not asked to judge itself.
func logVerify(a *app) *cobra.Command {
	var key, dir string
	c := &cobra.Command{Use: "verify [FILE]", Short: "verify the hash chain of the whole log, or an exported run; exit code 9 names what is bad", Args: cobra.MaximumNArgs(1),
		Long: "Without FILE it reads every record from the running hub, a read-only one too, and checks the chain on this machine;\n" +
			"with --dir from the folder of a hub that is stopped, of which nothing is changed. With FILE it verifies a run that\n" +
			"`log export` wrote, by the public key of its hub alone: chain, signature, ledger, every merge and the vote.",
		RunE: func(c *cobra.Command, got []string) error {
			switch {
			case len(got) == 1:
				return a.verifyExport(c.Context(), got[0], key)
			case dir != "":
				return a.verifyFolder(c.Context(), dir)
			}
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
				v.ReadOnly, v.Key = hub.ReadOnly, hub.Key
			}
			if err == nil && v.ReadOnly != "" {
				// the records that are left hold together, and the hub knows that some are missing
				v.OK, v.Reason = false, v.ReadOnly
				err = domain.Integrity("verify log", v.ReadOnly, "stop the hub, then: tensorturn log repair --from COPY, or restore its folder from a backup")
			}
			if a.json {
				if perr := a.object(v); perr != nil {
					return perr
				}
			} else if err == nil {
				a.print("ok: %d records, head %s", v.Records, v.Head)
				a.say("this hub's public key, for those who verify what it signed: %s", v.Key)
			}
			if err != nil {
				a.json = false // the object above is the answer; the error goes to standard error only
			}
			return err
		}}
	c.Flags().StringVar(&key, "key", "", "with FILE: public key of the hub that the run comes from, or a file with it")
	c.Flags().StringVar(&dir, "dir", "", "folder of a hub that is stopped")
	return c
}
