// Command rejudge judges recorded cases, each in a directory, again, after the judge has changed. It exits with 1 if a
// guarantee was broken, and with 2 if a case cannot be read.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/carillon-scheduler/carillon/chaos/judge"
)

func main() {
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: go run ./chaos/judge/rejudge [-json] DIR...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	code := 0
	for _, dir := range flag.Args() {
		c, err := judge.Load(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		v := judge.Judge(c)
		if *asJSON {
			err = v.PrintJSON(os.Stdout)
		} else {
			v.Print(os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if !v.Pass {
			code = 1
		}
	}
	os.Exit(code)
}
