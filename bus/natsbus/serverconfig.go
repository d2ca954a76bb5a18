package natsbus

import (
	"fmt"
	"strings"
)

// ServerConfig is what the configuration file of a NATS server needs so that exactly these users can act as their
// principals: an account of their own, without JetStream. A grant without a password has it in a variable of the
// server's environment, which [PasswordVariable] names.
func ServerConfig(grants []Grant) (string, error) {
	var b strings.Builder
	b.WriteString(`# The bus of Carillon. It needs no JetStream: nothing is stored.
max_payload: 8MB
# The requests of all programs arrive at one connection, the leader's: it must not be closed for what others send.
max_pending: 512MB

accounts {
  CARILLON {
    users: [
`)
	for _, g := range grants {
		password := quoted(g.Password)
		if g.Password == "" {
			password = "$" + PasswordVariable(g.User)
			g.Password = password
		}
		if err := g.Check(); err != nil {
			return "", err
		}
		can := g.Permission()
		fmt.Fprintf(&b, `      {
        user: %s, password: %s
        permissions: {
          publish: { allow: %s, deny: %s }
          subscribe: { allow: %s, deny: %s }
        }
      }
`, quoted(g.User), password, list(can.Publish.Allow), list(can.Publish.Deny), list(can.Subscribe.Allow), list(can.Subscribe.Deny))
	}
	b.WriteString("    ]\n  }\n}\n")
	return b.String(), nil
}

// PasswordVariable returns the variable of a server's environment that ServerConfig takes a user's password from.
func PasswordVariable(user string) string {
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, user)
	return "CARILLON_" + plain + "_PASSWORD"
}

func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

func list(subjects []string) string {
	all := make([]string, len(subjects))
	for i, s := range subjects {
		all[i] = quoted(s)
	}
	return "[" + strings.Join(all, ", ") + "]"
}
