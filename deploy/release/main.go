// Release builds what a release of Carillon consists of: archives, packages, an image, bills of materials, checksums
// and their signature.
//
// Start with build in build.go. It is a module of its own, so that users of Carillon do not need its libraries:
// nfpm (deb and rpm), go-containerregistry (the image), cyclonedx-go (bills of materials), minisign (signatures), and
// Mozilla's CA certificates.
//
// Sharp edges: the same commit, version and Go release give the same bytes, so nothing here may read the clock, the
// host's name, the umask or the order of a map.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

const usage = `usage:
  release build VERSION [-out dist] [-only linux/amd64,...] [-unsigned]
  release verify [DIR] -key KEY
  release reproduce VERSION [-only linux/amd64,...]
  release push IMAGE.tar REGISTRY/NAME:TAG

build writes a release of the commit at HEAD, and signs its checksums. The secret key in minisign's format is in the
file that CARILLON_SIGNING_KEY_FILE names, or in CARILLON_SIGNING_KEY itself; its password is in
CARILLON_SIGNING_PASSWORD, or build asks for it. -unsigned builds without a signature.

verify checks the signature and the checksums of a release. KEY is a public key, or a file with one; -unsigned checks
checksums only.

reproduce builds a release twice, in two clones in different folders, the second time with an empty build cache, and
compares the bytes.

push writes the image to a registry, with the logins of docker and podman, and prints its digest.
`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		if errors.Is(err, errUsage) {
			fmt.Fprint(os.Stderr, "\n"+usage)
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New("invalid command line")

// run executes a command line.
func run(args []string, to io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: want build, verify, reproduce or push", errUsage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	out := flags.String("out", "dist", "")
	only := flags.String("only", "", "")
	unsigned := flags.Bool("unsigned", false, "")
	key := flags.String("key", "", "")
	rest, err := parse(flags, args[1:])
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	systems, err := choose(*only)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "build" && len(rest) == 1:
		var sign signer
		if !*unsigned {
			if sign, err = loadSigner(os.Getenv, askPassword); err != nil {
				return err
			}
		}
		return build(release{dir: ".", version: rest[0], out: *out, systems: systems, sign: sign, log: to})
	case args[0] == "verify" && len(rest) <= 1:
		dir := "dist"
		if len(rest) == 1 {
			dir = rest[0]
		}
		return verify(dir, *key, *unsigned, to)
	case args[0] == "reproduce" && len(rest) == 1:
		return reproduce(".", rest[0], systems, to)
	case args[0] == "push" && len(rest) == 2:
		return push(rest[0], rest[1], to)
	}
	return fmt.Errorf("%w: %s", errUsage, strings.Join(args, " "))
}

// parse reads flags before and after other arguments.
func parse(flags *flag.FlagSet, args []string) (rest []string, err error) {
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if args = flags.Args(); len(args) > 0 {
			rest, args = append(rest, args[0]), args[1:]
		}
	}
	return rest, nil
}
