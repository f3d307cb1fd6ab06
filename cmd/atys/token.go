package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/auth"
)

func tokenCommand() *cobra.Command {
	var who auth.Identity
	var role, tokens, out string
	c := &cobra.Command{
		Use:   "token --tokens FILE --role ROLE [flags]",
		Short: "Make a token for agents, relays, readers or operators of a server",
		Long: `token makes a token, adds what a server needs to know of it to its file of
tokens, and prints the token itself, which is nowhere else: who has it may ship
windows (agent), ship those of others (relay), ask (reader), or also change what
is recorded (operator). A server reads the file again when it changes; to take a
token back, delete its line.`,
		Example: `  atys token --tokens /etc/atys/tokens --role agent --name 'rack 7' -o agent.token
  atys token --tokens /etc/atys/tokens --role reader --tenant team-a`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) (err error) {
			if tokens == "" {
				return &usageError{errors.New("--tokens: name the server's file of tokens")}
			}
			if who.Role, err = auth.ParseRole(role); err != nil {
				return &usageError{fmt.Errorf("--role: %w", err)}
			}
			if err := auth.CheckTenant(who.Tenant); err != nil {
				return &usageError{fmt.Errorf("--tenant: %w", err)}
			}
			return makeToken(who, tokens, out)
		},
	}
	flags := c.Flags()
	flags.StringVar(&tokens, "tokens", "", "file of tokens to add it to; it is made if it is not there")
	flags.StringVar(&role, "role", "", "what it is for: agent, relay, reader or operator")
	flags.StringVar(&who.Tenant, "tenant", auth.DefaultTenant, "whose windows and profiles are meant")
	flags.StringVar(&who.Name, "name", "", "what people call it")
	flags.StringVarP(&out, "output", "o", "", "file to write the token to, which only you may read; else it is printed")
	_ = c.MarkFlagFilename("tokens")
	_ = c.MarkFlagFilename("output")
	return c
}

func makeToken(who auth.Identity, tokens, out string) error {
	token := auth.NewToken()
	line, err := auth.Line(token, who)
	if err != nil {
		return &usageError{fmt.Errorf("--name: %w", err)}
	}
	if out != "" { // first: a token that is known but nobody has is worse than one that is not known
		if err := auth.WriteSecret(out, token); err != nil {
			return err
		}
	}
	if err := addLine(tokens, line); err != nil {
		return fmt.Errorf("add to the tokens in %q: %w", tokens, err)
	}
	if out == "" {
		fmt.Println(token)
	}
	return nil
}

// addLine adds a line. If the last one has no end, it gets one: else the two would
// be one, of which neither token is known.
func addLine(path, line string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && info.Size() > 0 {
		var last [1]byte
		if _, err = file.ReadAt(last[:], info.Size()-1); last[0] != '\n' {
			line = "\n" + line
		}
	}
	if err == nil {
		_, err = file.WriteString(line)
	}
	return errors.Join(err, file.Sync(), file.Close())
}
