// Package sqldb runs the lease engine over *sql.DB with lib/pq, a driver that
// shares nothing with pgx, and pools of the application's that leave it little:
// what the root module cannot test without requiring that driver.
package sqldb
