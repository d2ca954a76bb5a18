// Program holds the rules of the store, and so every mechanism that they are made of.
package main

import (
	"context"
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

func main() {
	st := memstore.Open(memstore.Config{})
	fmt.Println(st.Apply(context.Background(), []kernel.Envelope{}), metastore.MaxPage)
}
