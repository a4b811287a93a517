module github.com/idem-go/idem/amqpidem

go 1.26.0

require (
	github.com/google/uuid v1.6.0
	github.com/idem-go/idem v0.0.0
	github.com/jackc/pgx/v5 v5.9.2
	github.com/rabbitmq/amqp091-go v1.11.0
	github.com/stretchr/testify v1.11.1
)

require github.com/idem-go/idem/core/store/sqlstore v0.0.0

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/idem-go/idem => ../

replace github.com/idem-go/idem/core/store/sqlstore => ../core/store/sqlstore
