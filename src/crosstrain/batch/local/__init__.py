"""A batch system of this machine alone: for tests, demonstrations and laptops. No accounts, no priorities."""
